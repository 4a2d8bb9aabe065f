"""Streams and events of virtual GPUs. Operations are synchronous, so waiting does nothing."""

from __future__ import annotations

import itertools
import threading
import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from xdevice.backends.torch.private_names import core
from xdevice.backends.torch.virtual.runtime import NAME, Which, exchange, in_use, index_of

_TYPES = {NAME: int(core._autograd.DeviceType.PrivateUse1), "cuda": int(core._autograd.DeviceType.CUDA)}
_numbers = itertools.count(1 << 32)  # streams that C++ makes have smaller ones


class Event(torch.Event):
    """Like ``torch.cuda.Event``: the time at which it was recorded."""

    _timed: bool
    _at: float | None = None

    def __new__(cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> Event:
        made: Event = super().__new__(cls, in_use().name, enable_timing=enable_timing, blocking=blocking)
        made._timed = enable_timing
        return made

    def record(self, stream: torch.Stream | None = None) -> None:
        self._at = time.perf_counter()

    def elapsed_time(self, other: Any) -> float:
        """Milliseconds from this event to the other."""
        if not (self._timed and other._timed):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self._at is None or other._at is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return float(1000 * (other._at - self._at))


class Stream(torch.Stream):
    """Like ``torch.cuda.Stream``; an operation is finished when its call returns."""

    _Event: Any = Event

    def __new__(cls, device: Which = None, priority: int = 0, **options: Any) -> Stream:
        if "stream_id" not in options:
            options["stream_id"] = next(_numbers)
        there = {"device_index": index_of(device), "device_type": _TYPES[in_use().name]}
        made: Stream = super().__new__(cls, **there | options)
        return made

    def record_event(self, event: torch.Event | None = None) -> torch.Event:
        recorded: torch.Event = self._Event() if event is None else event
        recorded.record(self)
        return recorded

    def __enter__(self) -> Stream:
        _open.before.append((in_use().current(), current_stream(self.device)))
        exchange(self.device.index)
        set_stream(self)
        return self

    def __exit__(self, *error: object) -> None:
        index, stream = _open.before.pop()
        set_stream(stream)
        exchange(index)


class _Open(threading.local):
    """This thread's current stream of each device, and the state before each open block."""

    def __init__(self) -> None:
        self.current: dict[int, torch.Stream] = {}
        self.before: list[tuple[int, torch.Stream]] = []


_open = _Open()


def current_stream(device: Which = None) -> torch.Stream:
    index = index_of(device)
    return _open.current.get(index) or default_stream(index)


def default_stream(device: Which = None) -> Stream:
    return Stream(device, stream_id=0)


def set_stream(stream: torch.Stream) -> None:
    """Make this the current stream of its device; the current device does not change."""
    _open.current[stream.device.index] = stream


def stream(stream: Stream | None) -> AbstractContextManager[Any]:
    """A context in which the stream and its device are current; ``None`` changes nothing."""
    return nullcontext() if stream is None else stream
