"""Ray: a job whose processes are two actors on this host.

    XDEVICE_BACKEND=torch python examples/clusters/ray_local.py [PORT]

It needs ``pip install ray``. Ray gives its actors no ranks, so the script passes them to
`xdevice.distributed.init`. PORT is for the engine. Create new actors for each job.
"""

import os
import sys
from pathlib import Path

import ray

EXAMPLES = str(Path(__file__).resolve().parents[1])


@ray.remote(num_cpus=1, max_restarts=0)
class Trainer:
    """One process of the job."""

    def train(self, arguments, place):
        sys.path.insert(0, EXAMPLES)
        import resume

        resume.main(arguments, **place)


def main(port="29400", *arguments):
    checkpoint = os.path.abspath(f"resume-{os.getpid()}.safetensors")  # one for each job
    arguments = ("--checkpoint", checkpoint, *arguments)
    own = {name: value for name, value in os.environ.items() if name.startswith("XDEVICE_")}
    ray.init(num_cpus=2, include_dashboard=False, runtime_env={"env_vars": own})
    job = {"world_size": 2, "address": f"127.0.0.1:{port}"}
    trainers = [Trainer.remote() for _ in range(2)]
    # Waits, and raises the error of a process that has failed.
    ray.get(
        [
            trainer.train.remote(arguments, {"rank": rank, **job})
            for rank, trainer in enumerate(trainers)
        ]
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
