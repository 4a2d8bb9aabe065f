"""The segments, blocks and history of the caching allocator, as ``torch.cuda.memory`` returns them."""

import atexit
import sys
from collections.abc import Sequence
from threading import local
from types import FrameType
from typing import Any, TypeAlias

from xdevice.virtual.torch.compiled import STACK_OF, compiled
from xdevice.virtual.torch.cuda import allocator_settings
from xdevice.virtual.torch.cuda.memory_pools import PoolId

Frame: TypeAlias = tuple[str, str, int]
"""The name of a function, its file and the line."""

_ACTIONS = (
    "alloc",
    "free_requested",
    "free_completed",
    "segment_alloc",
    "segment_free",
    "segment_map",
    "segment_unmap",
    "oom",
    "snapshot",
)
"""The actions in the order of ``Action`` in history.h."""


_CONTEXTS = ("state", "alloc", "all")
"""Which stacks are recorded: of memory that is allocated, of allocations in the past, of frees."""


class _Stacks:
    """The Python stacks of allocations and frees, each once."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[Frame, ...], int] = {}
        self.function: Any = STACK_OF(self._number)  # kept alive for the plug-in

    def _number(self) -> int:
        return self._numbers.setdefault(_python_stack(), len(self._numbers))

    def frames(self) -> list[list[dict[str, Any]]]:
        """The frames of each stack, the innermost first."""
        return [
            [dict(zip(("name", "filename", "line"), frame, strict=True)) for frame in stack]
            for stack in list(self._numbers)
        ]


_XDEVICE = __name__.partition(".")[0]
_stacks = _Stacks()
_is_recorded = False


def _python_stack() -> tuple[Frame, ...]:
    frame: FrameType | None = sys._getframe(2)
    frames: list[Frame] = []
    while frame is not None:
        code = frame.f_code
        if str(frame.f_globals.get("__name__")).partition(".")[0] != _XDEVICE:
            frames.append((code.co_name, code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return tuple(frames)


def is_recorded() -> bool:
    return _is_recorded


def record(
    enabled: str | None,
    context: str | None,
    stacks: str = "all",
    max_entries: int = sys.maxsize,
    clear_history: bool = False,
    *more: object,
) -> None:
    """What ``torch._C._cuda_record_memory_history`` does. Stacks are Python's alone.

    Of what follows `clear_history`, the actions to leave out are, and notes of the compiler are not made.
    """
    global _is_recorded
    for value, known, expected in (
        (enabled, (None, "state", "all"), "expected state to be 'state', 'all', or None"),
        (
            context,
            (None, *_CONTEXTS),
            "expected context to be 'state', 'alloc', 'all', or None",
        ),
        (stacks, ("python", "all"), "expected stacks to be 'python', or 'all'"),
    ):
        if value not in known:
            raise RuntimeError(expected)
    _is_recorded = enabled is not None
    most = min(max_entries, sys.maxsize) if enabled == "all" else 1
    _record(_is_recorded, context, most, clear_history, more)


def record_legacy(enabled: bool, *more: Any) -> None:
    """What ``torch._C._cuda_record_memory_history_legacy`` does."""
    global _is_recorded
    has_stacks, most, has_stacks_of_allocations, _, clear_history, *rest = more
    _is_recorded = enabled
    context = None
    if has_stacks_of_allocations:
        context = "alloc"
    elif has_stacks:
        context = "state"
    _record(enabled, context, most, clear_history, rest)


def _record(
    enabled: bool, context: str | None, most: int, clear_history: bool, more: Sequence[object]
) -> None:
    skipped = more[-1] if more and isinstance(more[-1], list) else []
    mask = sum(1 << _ACTIONS.index(action) for action in skipped)
    level = _CONTEXTS.index(context) + 1 if enabled and context else 0
    compiled().record_history(enabled, most, clear_history, level, mask, _stacks.function)


_notes = [""]
"""What the program has written at events."""
_current_note = local()


def set_note(text: str) -> None:
    """Write this at the events of this thread, as ``_set_memory_metadata`` does."""
    if text not in _notes:
        _notes.append(text)
    _current_note.text = text
    compiled().note(_notes.index(text))


def get_note() -> str:
    return getattr(_current_note, "text", "")


@atexit.register
def _end() -> None:
    """Ask for no stacks while Python ends."""
    if _is_recorded:
        record(None, None)


def snapshot(pool: Sequence[int] | None = None) -> dict[str, Any]:
    """What ``torch._C._cuda_memorySnapshot`` returns.

    A third number of the pool tells whether the history is wanted.
    """
    virtual = compiled()
    devices = range(virtual.visible())
    frames = _stacks.frames()
    first, second, has_history = (*(pool or (0, 0)), True)[:3]
    histories = [_history(index, (first, second), frames) for index in devices]
    segments = [segment for index in devices for segment in _segments(index, frames)]
    return {
        "segments": [
            segment
            for segment in segments
            if not (first or second) or segment["segment_pool_id"] == (first, second)
        ],
        "device_traces": histories if has_history else [[] for _ in devices],
        "allocator_settings": allocator_settings.in_snapshot(),
        "external_annotations": [],
    }


def _history(device: int, pool: PoolId, frames: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    for line in compiled().history(device, *pool).value.decode().splitlines():
        action, address, size, stream, stack, note, first, second, time = map(int, line.split())
        event = {
            "action": _ACTIONS[action],
            "device_free" if _ACTIONS[action] == "oom" else "addr": address,
            "size": size,
            "stream": stream,
            "time_us": time,
            "compile_context": "N/A",
            "user_metadata": _notes[note],
            "pool_id": (first, second),
        }
        if stack >= 0:
            event["frames"] = frames[stack]
        events.append(event)
    return events


def _frames(frames: list[list[dict[str, Any]]], stack: int) -> list[dict[str, Any]]:
    return frames[stack] if stack >= 0 else []


def _segments(device: int, frames: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    segments: list[dict[str, Any]] = []
    for line in compiled().blocks(device).value.decode().splitlines():
        numbers = map(int, line.split())
        address, size, requested, stream, large, expandable, allocated, first, *more = numbers
        stack, stack_of_segment, *pool = more
        if first:
            segment = _segment(device, address, stream, bool(large), bool(expandable))
            segment["frames"] = _frames(frames, stack_of_segment)
            segment["segment_pool_id"] = tuple(pool)
            segments.append(segment)
        segment = segments[-1]
        segment["total_size"] += size
        for name in ("allocated_size", "active_size"):
            segment[name] += size * allocated
        segment["requested_size"] += requested
        segment["blocks"].append(
            {
                "address": address,
                "size": size,
                "requested_size": requested,
                "state": "active_allocated" if allocated else "inactive",
                "frames": _frames(frames, stack),
            }
        )
    return segments


def _segment(
    device: int, address: int, stream: int, large: bool, expandable: bool
) -> dict[str, Any]:
    return {
        "device": device,
        "address": address,
        "total_size": 0,
        "allocated_size": 0,
        "active_size": 0,
        "requested_size": 0,
        "stream": stream,
        "segment_type": "large" if large else "small",
        "is_expandable": expandable,
        "blocks": [],
    }
