"""submitit: a job of two processes on this host; with ``cluster="slurm"`` the same on a cluster.

    XDEVICE_BACKEND=torch python examples/clusters/submitit_local.py

It needs ``pip install submitit``. xdevice reads submitit's variables for this host; on Slurm, those of ``srun``.
"""

import os
import sys
from pathlib import Path

import submitit

EXAMPLES = str(Path(__file__).resolve().parents[1])


def train(arguments):
    """What every process does."""
    sys.path.insert(0, EXAMPLES)
    import resume

    resume.main(arguments)


def main():
    executor = submitit.AutoExecutor(folder="submitit-logs", cluster="local")
    executor.update_parameters(tasks_per_node=2, timeout_min=10)
    job = executor.submit(
        train, ["--checkpoint", f"resume-{os.getpid()}.safetensors", *sys.argv[1:]]
    )
    job.results()  # waits, and raises where a process has failed
    print(job.stdout())  # of rank 0


if __name__ == "__main__":
    main()
