"""MXNet's profiler beside virtual GPUs.

It knows three devices, and MXNet 1.9.1 ends the process when another one computes or allocates
while it runs, as ``cpu(1001)`` does. So it is not started.
"""

import sys
from typing import Any

from xdevice.virtual.mxnet.private_names import CValue, Function, in_library

_STOPPED = 0


def start() -> None:
    in_library("MXSetProcessProfilerState")(_set_state)


def _set_state(native: Function, state: CValue, *args: CValue) -> int:
    number: Any = getattr(state, "value", state)
    if number != _STOPPED:
        print("xdevice: mx.profiler records nothing on virtual GPUs", file=sys.stderr)
    status: int = native(_STOPPED, *args)
    return status
