"""GPUs for the examples: the machine's own, or virtual ones in host memory if it has too few."""

import os
import sys

import xdevice
from xdevice import Device, gpu, machine


def gpus(n: int) -> list[Device]:
    """The first ``n`` GPUs; exit with the reason if the framework does not support that many."""
    ask_for_gpus(n)
    if xdevice.num_gpus() < n:
        fewer = "two" if n == 2 else n
        sys.exit(
            f"{xdevice.backend()} sees fewer than {fewer} GPUs; XDEVICE_VIRTUAL_GPUS={n} gives it virtual ones"
        )
    return [gpu(i) for i in range(n)]


def ask_for_gpus(n: int) -> None:
    """Request ``n`` virtual GPUs if the machine has fewer than ``n`` GPUs.

    If the framework does not support virtual GPUs, exit with the reason. Call this before the
    framework creates its first tensor. The number of GPUs comes from the driver, because querying
    it initialises some frameworks.
    """
    asked = os.environ.get("XDEVICE_VIRTUAL_GPUS", "")
    number = int(asked) if asked.isdigit() else 0
    try:
        if number or len(machine.gpus()["gpus"]) < n:
            xdevice.virtual_gpus(number or n, force=True)
    except xdevice.NotSupportedError as error:
        # Not a failure: the example is not for this framework.
        print(f"Not supported: {error}")
        sys.exit(0)
    except xdevice.XDeviceError as error:
        sys.exit(str(error))
