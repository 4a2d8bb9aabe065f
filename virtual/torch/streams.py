"""Streams and events of virtual GPUs and of ``torch.cuda``.

Operations are synchronous, so waiting does nothing.
"""

from __future__ import annotations

import ctypes
import threading
import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from xdevice.virtual.torch.private_names import core, names, replace_name
from xdevice.virtual.torch.runtime import NAME, DeviceLike, exchange, in_use, index_of

CUDA = int(core._autograd.DeviceType.CUDA)
_DEVICE_TYPES = {NAME: int(core._autograd.DeviceType.PrivateUse1), "cuda": CUDA}
_get_stream, _set_stream = (
    names.value(f"torch._C:_accelerator_{name}Stream") for name in ("get", "set")
)


class Event(torch.Event):
    """Like ``torch.cuda.Event``: keeps the time at which it was recorded."""

    _has_timing: bool
    _time: float | None = None

    def __new__(
        cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> Event:
        event: Event = super().__new__(
            cls, in_use().name, enable_timing=enable_timing, blocking=blocking
        )
        event._has_timing = enable_timing
        return event

    def record(self, stream: torch.Stream | None = None) -> None:
        self._time = time.perf_counter()

    def elapsed_time(self, other: Any) -> float:
        if not (self._has_timing and other._has_timing):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self._time is None or other._time is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return float(1000 * (other._time - self._time))


class Stream(torch.Stream):
    """Like ``torch.cuda.Stream``; an operation is finished when its call returns."""

    _Event: Any = Event

    def __new__(cls, device: DeviceLike = None, priority: int = 0, **options: Any) -> Stream:
        options.setdefault("device_index", index_of(device))
        if "stream_id" not in options:
            if priority > 0:
                raise RuntimeError(
                    f"Expected cuda stream priority to be less than or equal to 0, got {priority}"
                )
            options["stream_id"] = in_use().new_stream(options["device_index"], priority)
        options.setdefault("device_type", _DEVICE_TYPES[in_use().name])
        stream: Stream = super().__new__(cls, **options)
        return stream

    def record_event(self, event: torch.Event | None = None) -> torch.Event:
        if event is None:
            event = self._Event()
        event.record(self)
        return event

    def __enter__(self) -> Stream:
        previous = (in_use().current(), current_stream(self.device))
        _of_thread.previous.append(previous)
        exchange(self.device.index)
        set_stream(self)
        return self

    def __exit__(self, *error: object) -> None:
        index, stream = _of_thread.previous.pop()
        set_stream(stream)
        exchange(index)


class _OfThread(threading.local):
    """This thread's current stream of each device.

    For each open ``with stream`` block it also keeps the previous device and stream.
    """

    def __init__(self) -> None:
        self.current: dict[int, torch.Stream] = {}
        self.previous: list[tuple[int, torch.Stream]] = []


_of_thread = _OfThread()


def current_stream(device: DeviceLike = None) -> torch.Stream:
    index = index_of(device)
    return _of_thread.current.get(index) or default_stream(index)


def default_stream(device: DeviceLike = None) -> Stream:
    return Stream(device, stream_id=0)


def set_stream(stream: torch.Stream) -> None:
    """Make this the current stream of its device; the current device does not change."""
    _of_thread.current[stream.device.index] = stream


def stream(stream: Stream | None) -> AbstractContextManager[Any]:
    """A context in which the stream and its device are current; ``None`` changes nothing."""
    return nullcontext() if stream is None else stream


class CudaEvent(Event):
    """An event that keeps its time, and that the plug-in uses to order copies."""

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
        lambda self: self._device,
        doc="The device of the stream that first recorded the event; ``None`` until then.",
    )
    cuda_event: Any = property(lambda self: self.event_id)
    _as_parameter_: Any = property(lambda self: ctypes.c_void_p(self.event_id))

    def record(self, stream: torch.Stream | None = None) -> None:
        if stream is None:
            device = torch.device("cuda", in_use().current())
        else:
            device = stream.device
        if self._device is not None and self._device != device:
            raise RuntimeError(
                f"Event device {self._device.index} does not match recording stream's device "
                f"{device.index}."
            )
        self._device = device
        super().record(stream)
        torch.Event.record(self, stream)

    def elapsed_time(self, other: Any) -> float:
        are_recorded = self._device is not None and other.device is not None
        if are_recorded and self._device != other.device:
            raise RuntimeError("CUDA error: invalid resource handle; the events are of two devices")
        return super().elapsed_time(other)

    def ipc_handle(self) -> bytes:
        """A handle for another process, which contains nothing: the event has happened by then."""
        return b"virtual"

    @classmethod
    def from_ipc_handle(cls, device: torch.device | int, ipc_handle: bytes) -> Any:
        event = cls()
        event._device = torch.device("cuda", index_of(device))
        return event

    def __repr__(self) -> str:
        if not self.cuda_event:
            return "<torch.cuda.Event uninitialized>"
        return f"<torch.cuda.Event {self.cuda_event:#x}>"


def _compiled() -> Any:
    return in_use()  # only compiled virtual GPUs stand in for CUDA's


class CudaStream(Stream):
    """A queue that is always empty; the numbers in its id are CUDA's (devices.h)."""

    _Event = CudaEvent
    __enter__: Any = torch.Stream.__enter__
    __exit__: Any = torch.Stream.__exit__
    priority: Any = property(lambda self: -max((self.stream_id >> 1 & 0xF) - 1, 0))
    cuda_stream: Any = property(
        lambda self: _compiled().handle_of_stream(self.device.index, self.stream_id)
    )
    _as_parameter_: Any = property(lambda self: ctypes.c_void_p(self.cuda_stream))

    @staticmethod
    def priority_range() -> tuple[int, int]:
        return 0, -3

    def __repr__(self) -> str:
        return (
            f"<torch.cuda.Stream device={self.device} cuda_stream={self.cuda_stream:#x} (virtual)>"
        )


def current_on_cuda(index: int) -> tuple[int, int, int]:
    """The id, the device index and the device type of a device's current stream."""
    index = _existing(index)
    return _get_stream(index).stream_id, index, CUDA


def default_on_cuda(index: int) -> tuple[int, int, int]:
    return 0, _existing(index), CUDA


def _existing(index: int) -> int:
    """The index, or the current device's for a negative one; CUDA's error if there is no such GPU."""
    if index < 0:
        return in_use().current()
    number = _compiled().visible()
    if index >= number:
        raise RuntimeError(f"Device index value {index} is out of index range [0, {number})")
    return index


def current_handle(index: int) -> int:
    return int(_compiled().handle_of_stream(index, _get_stream(index).stream_id))


def set_on_cuda(stream_id: int, device_index: int, device_type: int) -> None:
    _set_stream(
        torch.Stream(stream_id=stream_id, device_index=device_index, device_type=device_type)
    )
    exchange(device_index)


def replace_on_cuda() -> None:
    for name, replacement in (("Event", CudaEvent), ("Stream", CudaStream)):
        replacement.__name__ = replacement.__qualname__ = name
        replace_name(f"torch.cuda:{name}", replacement)
        replace_name(f"torch.cuda:streams.{name}", replacement)
