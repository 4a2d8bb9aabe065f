"""Copies that CUDA would not have finished: told where the program did not wait for them.

The plug-in keeps them back (late.h). A warning is of the line that made the copy, so torch's own words on it are
Python's: it names the file and the line, is told once, and may be an error.
"""

import atexit
import os
import sys
import warnings

from xdevice.backends.torch.private_names import kernels_of, untraced
from xdevice.backends.torch.virtual.compiled.plug_in import LATE, compiled
from xdevice.hooks import hooks

_WAIT = "call torch.cuda.synchronize(), or synchronize its stream or an event after it, first"
_MISUSES = (
    f"this copy with non_blocking=True had not arrived when {{}} used its memory, which holds NaN until then; {_WAIT}",
    f"the memory of this copy with non_blocking=True was changed before it had been sent; {_WAIT}",
    f"nothing has waited for this copy with non_blocking=True, and its memory holds NaN until then; {_WAIT}",
)
"""As late.h numbers them."""

_places: dict[tuple[str, int], int] = {}  # of the lines that copied, with their numbers


def _place() -> int:
    """The number of the line that makes a copy."""
    return _places.setdefault(_line(), len(_places))


def _line() -> tuple[str, int]:
    line: tuple[str, int] | None = hooks().line_of(sys._getframe(1))  # pyright: ignore[reportPrivateUsage]
    return line or ("<a backward pass, or a thread of a library>", 0)


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
    if os.getpid() == process:
        compiled().end()
