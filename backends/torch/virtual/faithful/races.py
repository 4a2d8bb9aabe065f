"""Races of streams: torch's own sanitizer finds them, and the error names the lines of the program.

The plug-in tells it of streams, events and memory what CUDA's functions tell (streams.h, memory.h).
"""

import atexit
import os
import sys
from traceback import StackSummary
from typing import Any

from xdevice.backends.torch.private_names import replace_name
from xdevice.hooks import hooks

_found: list[str] = []


def find() -> None:
    """Let a race be an error from now on, and the exit status 1, also if the program catches it."""
    from torch.cuda import _sanitizer  # pyright: ignore[reportPrivateUsage]  # its import begins to trace

    class CUDASanitizerErrors(_sanitizer.CUDASanitizerErrors):
        """Races, in a line each."""

        def __str__(self) -> str:
            return "\n".join(map(_described, self.errors))

        def __init__(self, errors: list[Any]) -> None:
            super().__init__(errors)
            _found.append(str(self))

    CUDASanitizerErrors.__module__, CUDASanitizerErrors.__qualname__ = _sanitizer.__name__, CUDASanitizerErrors.__name__
    replace_name("torch.cuda._sanitizer:CUDASanitizerErrors", CUDASanitizerErrors)
    if not _sanitizer.cuda_sanitizer.enabled:  # by TORCH_CUDA_SANITIZER
        sanitizer: Any = _sanitizer.cuda_sanitizer  # untyped
        sanitizer.enable()
    atexit.register(_end, os.getpid())


def _described(race: Any) -> str:
    now, before = race.current_access, race.previous_access
    return (
        f"{_line(now.stack_trace)} is {now.type} a tensor on {_named(now.stream)}, and has not waited for "
        f"{_line(before.stack_trace)}, {before.type} it on {_named(before.stream)}; call wait_stream, or wait_event, "
        "of the later stream first"
    )


def _named(stream: int) -> str:
    return f"stream {stream:#x}" if stream else "the default stream"


def _line(trace: StackSummary) -> str:
    own = [frame for frame in trace if hooks().is_users(frame.filename)]
    return f"{os.path.relpath(own[-1].filename)}:{own[-1].lineno}" if own else "a thread of a library"


def _end(process: int) -> None:
    if _found and os.getpid() == process:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)
