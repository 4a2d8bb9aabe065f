"""What virtual GPUs refuse in a request, and how a program ends where a framework cannot have them."""

import sys
from types import TracebackType

from xdevice.contract import Request
from xdevice.errors import NotSupportedError, VirtualDeviceError
from xdevice.virtual.request import MEMORY


def refuse_memory_limit(request: Request, framework: str, instead: str = "") -> None:
    """Raise an error if the request has a limit of memory.

    For frameworks whose virtual GPUs are CPU devices of the framework itself.
    """
    if request.memory is not None:
        reason = f"{framework} cannot limit the memory of one CPU device"
        raise NotSupportedError(f"{MEMORY} asks for a limit, and {reason}; leave it out{instead}")


def refuse_to_hide(request: Request, real: int, framework: str) -> None:
    """Raise an error if there are real GPUs, unless ``force`` lets virtual ones hide them."""
    if real and not request.force:
        n = request.number
        hint = f"use these, or hide them with virtual_gpus({n}, force=True)"
        raise VirtualDeviceError(
            f"{n} virtual GPUs were asked for, but {framework} sees {real} real; {hint}"
        )


class RefusedExit(SystemExit):
    """Ends the process: a framework cannot have what the process needs. The reason is printed."""


class RefusedImportError(ImportError):
    """A framework cannot have the virtual GPUs that were requested. The reason is printed.

    Uncaught, it ends the program without a traceback.
    """

    def __init__(self, message: str, framework: str) -> None:
        super().__init__(message, name=framework)
        previous = sys.excepthook

        def show(
            kind: type[BaseException], error: BaseException, trace: TracebackType | None
        ) -> None:
            if error is not self:
                previous(kind, error, trace)

        sys.excepthook = show
