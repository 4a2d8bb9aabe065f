"""Two GPUs for a lesson: the machine's own if it has two, else virtual ones, in the host's memory."""

import os
import sys

import xdevice
from xdevice import Device, gpu, machine


def two_gpus() -> list[Device]:
    """``gpu(0)`` and ``gpu(1)``; ends the script, with the reason, where the framework cannot have them.

    To be called before the framework makes its first tensor. The driver is asked, not the framework:
    to ask some frameworks is to use them.
    """
    asked = os.environ.get("XDEVICE_VIRTUAL_GPUS", "")
    number = int(asked) if asked.isdigit() else 0
    try:
        if number or len(machine.gpus()["gpus"]) < 2:
            xdevice.virtual_gpus(number or 2, force=True)
        if xdevice.num_gpus() < 2:
            sys.exit(f"{xdevice.backend()} sees fewer than two GPUs; XDEVICE_VIRTUAL_GPUS=2 gives it virtual ones")
        virtual = xdevice.properties(gpu(0))["virtual"]
        print(f"Two GPUs, {gpu(0)} and {gpu(1)}" + (", both virtual" if virtual else ""))
    except xdevice.NotSupportedError as error:  # not a mistake: the lesson is not for this framework
        print(f"Not supported: {error}")
        sys.exit(0)
    except xdevice.XDeviceError as error:
        sys.exit(str(error))
    return [gpu(0), gpu(1)]
