"""Copies that CUDA would not have finished: told where the program did not wait for them.

The plug-in keeps them back (late.h). What is told is a warning of the line that made the copy, once for each line.
"""

import atexit
import os
import sys
import warnings
from types import FrameType

from xdevice.backends.torch.private_names import kernels_of, untraced
from xdevice.backends.torch.virtual.compiled.plug_in import LATE, compiled
from xdevice.hooks import hooks

_UNTIL = "until then that is NaN, or bytes 0x81; call torch.cuda.synchronize(), or that of a later event, first"
_MISUSES = (
    f"a copy with non_blocking=True had not arrived when {{}} used its memory: {_UNTIL}",
    f"memory was changed before a copy of it with non_blocking=True had been sent; {_UNTIL.rpartition('; ')[2]}",
    f"nothing has waited for a copy with non_blocking=True to arrive in memory: {_UNTIL}",
)
"""As late.h numbers them."""
_NEVER_WAITED_FOR = 2

_places: dict[tuple[str, int], int] = {}  # of the lines that copied, with their numbers


def _place() -> int:
    """The number of the line that makes a copy."""
    return _places.setdefault(_line(), len(_places))


def _line() -> tuple[str, int]:
    frame: FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]  # inspect's is slower
    while frame is not None:
        if hooks().is_users(frame.f_code.co_filename):
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
    return "<a thread of a library>", 0


def _misused(how: int, place: int) -> None:
    (file, line), user = list(_places)[place], _line()
    message = _MISUSES[how].format(f"{os.path.basename(user[0])}:{user[1]}")
    warnings.warn_explicit(message, RuntimeWarning, file, line)


def begin() -> None:
    """Keep copies back until the program has waited for them, and tell of those for which it has not."""
    library = kernels_of("xdevice_virtual")
    library.impl("place", untraced(_place), "CPU")
    library.impl("misused", untraced(_misused), "CPU")
    compiled().check(LATE, True)
    atexit.register(_end, os.getpid())


def _end(process: int) -> None:
    while os.getpid() == process and (place := compiled().pending()) >= 0:
        _misused(_NEVER_WAITED_FOR, place)
