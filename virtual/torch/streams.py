"""Streams and events of virtual GPUs, and those of ``torch.cuda``. Operations are synchronous: waiting does nothing."""

from __future__ import annotations

import ctypes
import itertools
import threading
import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from xdevice.virtual.torch.private_names import core, names, replace_name
from xdevice.virtual.torch.runtime import NAME, Which, exchange, in_use, index_of

CUDA = int(core._autograd.DeviceType.CUDA)
_TYPES = {NAME: int(core._autograd.DeviceType.PrivateUse1), "cuda": CUDA}
_get_stream, _set_stream = (
    names.value(f"torch._C:_accelerator_{name}Stream") for name in ("get", "set")
)
_numbers = itertools.count(1 << 32)  # streams that C++ makes have smaller ones


class Event(torch.Event):
    """Like ``torch.cuda.Event``: the time at which it was recorded."""

    _timed: bool
    _at: float | None = None

    def __new__(
        cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> Event:
        made: Event = super().__new__(
            cls, in_use().name, enable_timing=enable_timing, blocking=blocking
        )
        made._timed = enable_timing
        return made

    def record(self, stream: torch.Stream | None = None) -> None:
        self._at = time.perf_counter()

    def elapsed_time(self, other: Any) -> float:
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


class CudaEvent(Event):
    """The time at which it was recorded, and the copies that are over by then."""

    def __new__(
        cls,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
        external: bool = False,
    ) -> Any:
        return super().__new__(cls, enable_timing, blocking)

    _device: torch.device | None = None
    device: Any = property(
        lambda self: self._device, doc="That of the stream that recorded it first; before, none."
    )
    cuda_event: Any = property(lambda self: self.event_id)
    _as_parameter_: Any = property(lambda self: ctypes.c_void_p(self.event_id))

    def record(self, stream: torch.Stream | None = None) -> None:
        device = torch.device("cuda", in_use().current()) if stream is None else stream.device
        if self._device is not None and self._device != device:
            there = f"does not match recording stream's device {device.index}."
            raise RuntimeError(f"Event device {self._device.index} {there}")
        self._device = device
        super().record(stream)
        torch.Event.record(self, stream)

    def elapsed_time(self, other: Any) -> float:
        if None not in (self._device, other.device) and self._device != other.device:
            raise RuntimeError("CUDA error: invalid resource handle; the events are of two devices")
        return super().elapsed_time(other)

    def ipc_handle(self) -> bytes:
        """A word for another process: this event has happened when it arrives there."""
        return b"virtual"

    @classmethod
    def from_ipc_handle(cls, device: torch.device | int, ipc_handle: bytes) -> Any:
        made = cls()
        made._device = torch.device("cuda", index_of(device))
        return made

    def __repr__(self) -> str:
        return (
            f"<torch.cuda.Event {self.cuda_event:#x}>"
            if self.cuda_event
            else "<torch.cuda.Event uninitialized>"
        )


class CudaStream(Stream):
    """A queue that is always empty."""

    _Event = CudaEvent
    __enter__: Any = torch.Stream.__enter__
    __exit__: Any = torch.Stream.__exit__
    priority = 0  # no stream ever waits for another
    cuda_stream: Any = property(lambda self: int(self.stream_id))
    _as_parameter_: Any = property(lambda self: ctypes.c_void_p(self.stream_id))

    @staticmethod
    def priority_range() -> tuple[int, int]:
        return 0, 0

    def __repr__(self) -> str:
        return (
            f"<torch.cuda.Stream device={self.device} cuda_stream={self.cuda_stream:#x} (virtual)>"
        )


def current_on_cuda(index: int) -> tuple[int, int, int]:
    """The current stream of a device: its number, the device's and CUDA's."""
    return _get_stream(index).stream_id, index, CUDA


def set_on_cuda(stream_id: int, device_index: int, device_type: int) -> None:
    _set_stream(
        torch.Stream(stream_id=stream_id, device_index=device_index, device_type=device_type)
    )
    exchange(device_index)


def replace_on_cuda() -> None:
    for name, ours in (("Event", CudaEvent), ("Stream", CudaStream)):
        ours.__name__ = ours.__qualname__ = name
        replace_name(f"torch.cuda:{name}", ours)
        replace_name(f"torch.cuda:streams.{name}", ours)
