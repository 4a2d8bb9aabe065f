"""The segments, blocks and history of the caching allocator, as ``torch.cuda.memory`` returns them."""

import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any, TypeAlias

from xdevice.virtual.torch.compiled import STACK_OF, compiled
from xdevice.virtual.torch.private_names import core

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


class _Stacks:
    """The Python stacks of allocations, each once."""

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
_skipped: frozenset[str] = frozenset()  # the actions that a snapshot leaves out


def _python_stack() -> tuple[Frame, ...]:
    frame: FrameType | None = sys._getframe(2)  # pyright: ignore[reportPrivateUsage]
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
    """What ``torch._C._cuda_record_memory_history`` does; only allocations have stacks, and only Python's.

    Of what follows `clear_history`, the actions to leave out are, and notes of the compiler are not made.
    """
    global _is_recorded, _skipped
    _skipped = frozenset(more[-1]) if more and isinstance(more[-1], list) else frozenset()
    for value, name, known in (
        (enabled, "enabled", (None, "state", "all")),
        (context, "context", (None, "state", "alloc", "all")),
        (stacks, "stacks", ("python", "all")),
    ):
        _check(value, name, known)
    _is_recorded = enabled is not None
    most = min(max_entries, sys.maxsize) if enabled == "all" else 1
    function = _stacks.function if context else STACK_OF()
    compiled().record_history(_is_recorded, most, clear_history, function)


def record_legacy(enabled: bool, *more: Any) -> None:
    """What ``torch._C._cuda_record_memory_history_legacy`` does."""
    has_stacks, most, has_stacks_of_allocations, _, clear_history = more[:5]
    context = "all" if has_stacks or has_stacks_of_allocations else None
    record("all" if enabled else None, context, "all", most, clear_history)


def _check(value: str | None, name: str, known: Sequence[str | None]) -> None:
    if value not in known:
        expected = ", ".join(str(each) for each in known if each is not None)
        raise RuntimeError(f"Expected {name} to be one of {expected} or None but got {value!r}")


def snapshot(pool: tuple[int, ...] | None = None) -> dict[str, Any]:
    """What ``torch._C._cuda_memorySnapshot`` returns.

    A third number of the pool tells whether the history is wanted.
    """
    virtual = compiled()
    devices = range(virtual.visible())
    frames = _stacks.frames()
    has_history = pool is None or len(pool) < 3 or bool(pool[2])
    return {
        "segments": [segment for index in devices for segment in _segments(index, frames)],
        "device_traces": [_history(index, frames) if has_history else [] for index in devices],
        "allocator_settings": _settings(),
        "external_annotations": [],
    }


def _settings() -> dict[str, Any]:
    """The settings that the allocator follows."""
    text: str = core._accelerator_getAllocatorSettings()
    words = dict(word.partition(":")[::2] for word in text.replace(" ", "").split(",") if word)
    megabytes = int(words.get("max_split_size_mb", -1))
    return {
        "PYTORCH_CUDA_ALLOC_CONF": text,
        "max_split_size": megabytes << 20 if megabytes > 0 else -1,
        "garbage_collection_threshold": float(words.get("garbage_collection_threshold", 0)),
        "expandable_segments": words.get("expandable_segments") == "True",
    }


def _history(device: int, frames: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    for line in compiled().history(device).value.decode().splitlines():
        action, address, size, stream, stack, time = map(int, line.split())
        events.append(
            {
                "action": _ACTIONS[action],
                "device_free" if _ACTIONS[action] == "oom" else "addr": address,
                "frames": frames[stack] if stack >= 0 else [],
                "size": size,
                "stream": stream,
                "time_us": time,
                "compile_context": "N/A",
                "user_metadata": "",
                "pool_id": (0, 0),
            }
        )
    return [event for event in events if event["action"] not in _skipped]


def _segments(device: int, frames: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    segments: list[dict[str, Any]] = []
    for line in compiled().blocks(device).value.decode().splitlines():
        numbers = map(int, line.split())
        address, size, requested, stream, large, expandable, allocated, first, stack = numbers
        if first:
            segments.append(_segment(device, address, stream, bool(large), bool(expandable)))
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
                "frames": frames[stack] if stack >= 0 else [],
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
        "segment_pool_id": (0, 0),
        "is_expandable": expandable,
        "frames": [],
        "blocks": [],
    }
