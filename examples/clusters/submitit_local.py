"""submitit: a job of two processes on this host; with ``cluster="slurm"`` the same on a cluster.

    XDEVICE_BACKEND=torch python examples/clusters/submitit_local.py

It needs ``pip install submitit``. On this host xdevice reads submitit's variables; on Slurm, those of
``srun``.
"""

import os
import sys
from pathlib import Path

import submitit

EXAMPLES = str(Path(__file__).resolve().parents[1])


def train(arguments):
    """The work of each process."""
    sys.path.insert(0, EXAMPLES)
    import resume

    resume.main(arguments)


def main():
    executor = submitit.AutoExecutor(folder="submitit-logs", cluster="local")
    executor.update_parameters(tasks_per_node=2, timeout_min=10)
    job = executor.submit(
        train, ["--checkpoint", f"resume-{os.getpid()}.safetensors", *sys.argv[1:]]
    )
    job.results()  # waits, and raises the error of a process that has failed
    print(job.stdout())  # of rank 0


if __name__ == "__main__":
    main()
