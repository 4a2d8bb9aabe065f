"""Dask: a job whose processes are the two workers of a cluster on this host.

    XDEVICE_BACKEND=torch python examples/clusters/dask_local.py [PORT]

It needs ``pip install "dask[distributed]"``. Dask gives its workers no ranks, so the script passes them
to `xdevice.distributed.init`. PORT is for the engine. Start a new cluster for each job: a
framework's engine can often be started only once in a process.
"""

import os
import sys
from pathlib import Path

from dask.distributed import Client, LocalCluster

EXAMPLES = str(Path(__file__).resolve().parents[1])


def train(arguments, place):
    """The work of each process."""
    sys.path.insert(0, EXAMPLES)
    import resume

    resume.main(arguments, **place)


def main(port="29400", *arguments):
    checkpoint = f"resume-{os.getpid()}.safetensors"  # one for each job
    arguments = ("--checkpoint", checkpoint, *arguments)
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        job = {"world_size": 2, "address": f"127.0.0.1:{port}"}
        workers = list(client.scheduler_info()["workers"])
        # Each task has its own worker and is not repeated: a repeated task would join a finished job.
        tasks = [
            client.submit(
                train, arguments, {"rank": rank, **job}, workers=[worker], pure=False, retries=0
            )
            for rank, worker in enumerate(workers)
        ]
        client.gather(tasks)  # waits, and raises the error of a process that has failed


if __name__ == "__main__":
    main(*sys.argv[1:])
