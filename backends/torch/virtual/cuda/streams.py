"""``torch.cuda.Stream`` and ``Event``: torch's own, which ask the plug-in."""

import ctypes
from typing import Any

import torch

from xdevice.backends.torch.private_names import core, replace_name
from xdevice.backends.torch.virtual import streams
from xdevice.backends.torch.virtual.runtime import exchange, in_use, index_of

CUDA = int(core._autograd.DeviceType.CUDA)


class Event(streams.Event):
    """The time at which it was recorded, and the copies that are over by then."""

    def __new__(
        cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, external: bool = False
    ) -> Any:
        return super().__new__(cls, enable_timing, blocking)

    _device: torch.device | None = None
    device: Any = property(lambda self: self._device, doc="That of the stream that recorded it first; before, none.")
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
        return f"<torch.cuda.Event {self.cuda_event:#x}>" if self.cuda_event else "<torch.cuda.Event uninitialized>"


class Stream(streams.Stream):
    """A queue that is always empty."""

    _Event = Event
    __enter__: Any = torch.Stream.__enter__
    __exit__: Any = torch.Stream.__exit__
    priority = 0  # no stream ever waits for another
    cuda_stream: Any = property(lambda self: int(self.stream_id))
    _as_parameter_: Any = property(lambda self: ctypes.c_void_p(self.stream_id))

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """The lowest and the highest priority."""
        return 0, 0

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device={self.device} cuda_stream={self.cuda_stream:#x} (virtual)>"


def current(index: int) -> tuple[int, int, int]:
    """The current stream of a device: its number, the device's and CUDA's."""
    stream = core._accelerator_getStream(index)
    return stream.stream_id, index, CUDA


def choose(stream_id: int, device_index: int, device_type: int) -> None:
    """Make the stream and its device current."""
    core._accelerator_setStream(torch.Stream(stream_id=stream_id, device_index=device_index, device_type=device_type))
    exchange(device_index)


def replace() -> None:
    for ours in (Stream, Event):
        replace_name(f"torch.cuda:{ours.__name__}", ours)
        replace_name(f"torch.cuda:streams.{ours.__name__}", ours)
