"""What real GPUs refuse, or do later: virtual GPUs that stand in do the same, unless they are lenient."""

import atexit
import os
import re
import sys
import warnings
from pathlib import Path
from traceback import StackSummary
from types import FrameType
from typing import Any

from xdevice.tensors.transfers.callers import is_users
from xdevice.virtual.torch.compiled import LATE, compiled
from xdevice.virtual.torch.private_names import (
    in_place_of,
    kernels_of,
    names,
    replace_name,
    untraced,
)

_ELSEWHERE = "a thread of a library"


def refuse_nondeterministic() -> None:
    """Tell the plug-in which operations CUDA computes in no fixed order; it refuses them in torch's own words."""
    for line in (
        Path(__file__).with_name("nondeterministic.txt").read_text(encoding="utf-8").splitlines()
    ):
        if not line.startswith("#"):
            operation, caller, decides = re.split(r" {2,}", line)
            argument, _, value = decides.partition("=")
            compiled().alert(
                *(word.encode() for word in (f"aten::{operation}", caller, argument, value))
            )


_UNTIL = "until then that is NaN, or bytes 0x81; call torch.cuda.synchronize(), or that of a later event, first"
_MISUSES = (
    f"a copy with non_blocking=True had not arrived when {{}} used its memory: {_UNTIL}",
    f"memory was changed before a copy of it with non_blocking=True had been sent; {_UNTIL.rpartition('; ')[2]}",
    f"nothing has waited for a copy with non_blocking=True to arrive in memory: {_UNTIL}",
)
"""As late.h numbers them."""

_places: dict[tuple[str, int], int] = {}  # of the lines that copied, with their numbers


def keep_copies_back() -> None:
    """Keep copies back (late.h) until the program has waited for them; else warn, once for each line that copied."""
    library = kernels_of("xdevice_virtual")
    library.impl("place", untraced(lambda: _places.setdefault(_line(), len(_places))), "CPU")
    library.impl("misused", untraced(_misused), "CPU")
    compiled().check(LATE, True)
    atexit.register(_tell_pending, os.getpid())


def _line() -> tuple[str, int]:
    frame: FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]  # inspect's is slower
    while frame is not None:
        if is_users(frame.f_code.co_filename):
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
    return f"<{_ELSEWHERE}>", 0


def _misused(how: int, place: int) -> None:
    (file, line), user = list(_places)[place], _line()
    message = _MISUSES[how].format(f"{os.path.basename(user[0])}:{user[1]}")
    warnings.warn_explicit(message, RuntimeWarning, file, line)


def _tell_pending(process: int) -> None:
    while os.getpid() == process and (place := compiled().pending()) >= 0:
        _misused(2, place)  # it has not been waited for


_races: list[str] = []


def find_races() -> None:
    """Let torch's sanitizer find races, which are an error from now on, and exit status 1 if the program catches it."""
    # the plug-in tells it of streams, events and memory what CUDA's functions tell (devices.h, memory.h)
    names.require("races of streams")  # its import begins to trace
    from torch.cuda import _sanitizer  # pyright: ignore[reportPrivateUsage]

    @in_place_of("torch.cuda._sanitizer:CUDASanitizerErrors.__init__")
    def init(make: Any, self: Any, errors: list[Any]) -> None:
        make(self, errors)
        _races.append(str(self))

    described = "torch.cuda._sanitizer:CUDASanitizerErrors.__str__"
    replace_name(described, lambda self: "\n".join(map(_described, self.errors)))  # in a line each
    if not _sanitizer.cuda_sanitizer.enabled:  # by TORCH_CUDA_SANITIZER
        sanitizer: Any = _sanitizer.cuda_sanitizer  # untyped
        sanitizer.enable()
    atexit.register(_exit, os.getpid())


def _described(race: Any) -> str:
    now, before = race.current_access, race.previous_access
    return (
        f"{_line_of(now.stack_trace)} is {now.type} a tensor on {_named(now.stream)}, and has not waited for "
        f"{_line_of(before.stack_trace)}, {before.type} it on {_named(before.stream)}; call wait_stream, or "
        "wait_event, of the later stream first"
    )


def _named(stream: int) -> str:
    return f"stream {stream:#x}" if stream else "the default stream"


def _line_of(trace: StackSummary) -> str:
    own = [frame for frame in trace if is_users(frame.filename)]
    return f"{os.path.relpath(own[-1].filename)}:{own[-1].lineno}" if own else _ELSEWHERE


def _exit(process: int) -> None:
    if _races and os.getpid() == process:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)
