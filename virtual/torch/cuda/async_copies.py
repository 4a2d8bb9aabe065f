"""Delay asynchronous copies, as CUDA does, until the program has waited for them.

The plug-in delays the copies (compiled/async_copies.h), and reports a program that does not wait. Virtual
GPUs that are lenient copy immediately.
"""

import atexit
import os
import sys
import warnings
from types import FrameType
from typing import NamedTuple

from xdevice.transfers.callers import is_users
from xdevice.virtual.torch.compiled import ASYNC, compiled
from xdevice.virtual.torch.private_names import kernels_of, untraced

_REMEDY = "call torch.cuda.synchronize(), or that of a later event, first"
_UNTIL = f"until then that is NaN, or bytes 0x81; {_REMEDY}"
_MISUSES = (
    "a copy with non_blocking=True had not arrived when {user} used its memory: " + _UNTIL,
    "memory was changed before a copy of it with non_blocking=True had been sent; " + _REMEDY,
    "nothing has waited for a copy with non_blocking=True to arrive in memory: " + _UNTIL,
)
"""The messages for each misuse, in the order of ``Misuse`` in async_copies.h."""

_NEVER_WAITED_FOR = 2


class Line(NamedTuple):
    file: str
    number: int


_copying_lines: dict[Line, int] = {}
"""The lines that copied, each with the number by which the plug-in identifies it."""


def delay() -> None:
    """Delay copies, and warn once for each line whose copy the program does not wait for."""
    library = kernels_of("xdevice_virtual")
    library.impl("current_line", untraced(_number_of_current_line), "CPU")
    library.impl("report_misuse", untraced(_warn), "CPU")
    compiled().check(ASYNC, True)
    atexit.register(_warn_of_pending_copies, os.getpid())


def _number_of_current_line() -> int:
    return _copying_lines.setdefault(current_line(), len(_copying_lines))


def current_line() -> Line:
    """The innermost line of the user's program that is running in this thread."""
    # inspect.currentframe is slower
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if is_users(frame.f_code.co_filename):
            return Line(frame.f_code.co_filename, frame.f_lineno)
        frame = frame.f_back
    return Line("<a thread of a library>", 0)


def _warn(misuse: int, copying_line: int) -> None:
    copy = list(_copying_lines)[copying_line]
    user = current_line()
    message = _MISUSES[misuse].format(user=f"{os.path.basename(user.file)}:{user.number}")
    warnings.warn_explicit(message, RuntimeWarning, copy.file, copy.number)


def _warn_of_pending_copies(process: int) -> None:
    if os.getpid() != process:
        return
    while (copying_line := compiled().next_pending()) >= 0:
        _warn(_NEVER_WAITED_FOR, copying_line)
