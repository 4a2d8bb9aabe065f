"""Races between streams, which torch's CUDA sanitizer finds."""

import atexit
import os
import sys
from traceback import StackSummary
from typing import Any

from xdevice.transfers.callers import is_users
from xdevice.virtual.torch.private_names import Function, in_place_of, names, replace_name

_messages: list[str] = []
"""The races that have been found."""


def find_races() -> None:
    """Make races an error, and make the exit status 1 if the program catches that error."""
    # the plug-in reports streams, events and memory to the sanitizer as CUDA's functions do
    # (devices.h, memory.h)
    names.require("races of streams")
    # late: the import starts to trace
    from torch.cuda import _sanitizer

    @in_place_of("torch.cuda._sanitizer:CUDASanitizerErrors.__init__")
    def init(native: Function, self: object, errors: list[object]) -> None:
        native(self, errors)
        _messages.append(str(self))

    def describe_all(self: Any) -> str:
        return "\n".join(map(_description, self.errors))

    replace_name("torch.cuda._sanitizer:CUDASanitizerErrors.__str__", describe_all)
    sanitizer: Any = _sanitizer.cuda_sanitizer  # untyped
    if not sanitizer.enabled:  # TORCH_CUDA_SANITIZER enables it too
        sanitizer.enable()
    atexit.register(_exit_with_error, os.getpid())


def _description(race: Any) -> str:
    current, previous = race.current_access, race.previous_access
    return (
        f"{_line(current.stack_trace)} is {current.type} a tensor on "
        f"{_stream_name(current.stream)}, and has not waited for "
        f"{_line(previous.stack_trace)}, {previous.type} it on "
        f"{_stream_name(previous.stream)}; call wait_stream, or wait_event, of the later stream "
        "first"
    )


def _stream_name(stream: int) -> str:
    return f"stream {stream:#x}" if stream else "the default stream"


def _line(trace: StackSummary) -> str:
    """The file and the line of the user's innermost frame."""
    frames = [frame for frame in trace if is_users(frame.filename)]
    if not frames:
        return "a thread of a library"
    return f"{os.path.relpath(frames[-1].filename)}:{frames[-1].lineno}"


def _exit_with_error(process: int) -> None:
    if _messages and os.getpid() == process:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)
