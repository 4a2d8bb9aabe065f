"""Scenarios in which the processes of a job save and load files, and print the results."""

import os
import sys
import time
from pathlib import Path

import xdevice
from xdevice import distributed


def writes(path):
    """Rank 0 writes slowly; the others find a complete file when ``save`` returns."""
    if distributed.rank() == 0:
        time.sleep(1)
    xdevice.save({"w": xdevice.full((3,), float(distributed.rank()))}, path)
    print(
        "found",
        xdevice.to_numpy(xdevice.load(path)["w"]).tolist(),
        sorted(os.listdir(path.parent)),
        flush=True,
    )


def fails(path):
    """Rank 0 cannot write, and ignores the error."""
    if distributed.rank() == 0:
        time.sleep(
            2
        )  # the others are waiting for it then, and no longer on their way out of init()
    try:
        xdevice.save({"w": xdevice.ones(3)}, path / "none" / "file")
    except (OSError, xdevice.XDeviceError) as error:
        print("save:", type(error).__name__, error, flush=True)
    try:
        distributed.barrier()
    except xdevice.DistributedError as error:
        print("barrier:", type(error).__name__, flush=True)


if __name__ == "__main__":
    try:
        with distributed.process_group(timeout=20):
            globals()[sys.argv[1]](Path(sys.argv[2]))
    except xdevice.DistributedError as error:
        print("at last", error, flush=True)
