"""The virtual GPUs of this process: what a way of making them provides, and the one in use."""

# the body of a Protocol's method is its docstring
# pyright: reportReturnType=false

from functools import cache
from typing import Any, Protocol

import torch

from xdevice.device import Device

NAME = "vgpu"
"""Their device type in torch, unless they stand in for CUDA's."""


class Runtime(Protocol):
    """A way of making virtual GPUs; devices are given by index, and memory is in bytes."""

    name: str  # their device type in torch: ``vgpu``, or ``cuda`` while they stand in for CUDA's
    count: int
    capacity: int  # the memory of each, as far as it is told
    limited: bool  # whether tensors may not exceed the capacity
    generators: list[torch.Generator]  # the default ones: as on real GPUs, drawing on the CPU does not affect them

    def start(self) -> None:
        """Register the devices with torch, and what computes on them."""

    def visible(self) -> int:
        """How many of them there are for the program, which hides others by ``CUDA_VISIBLE_DEVICES``."""

    def current(self) -> int:
        """This thread's current device, meant by a device type without an index."""

    def exchange(self, index: int, /) -> int:
        """Set this thread's current device, which exists, and return the previous one. -1 changes nothing."""

    def is_used(self) -> bool:
        """Whether a virtual GPU has been used: ``is_initialized()`` of ``torch.vgpu`` and ``torch.cuda``."""

    def use(self, whether: bool, /) -> None:
        """Note that a virtual GPU has been used, or that none has yet."""

    def is_forked(self) -> bool:
        """Whether this process was forked from one that had used virtual GPUs; they cannot be used here."""

    def allocated(self, index: int, /) -> int:
        """Memory of live tensors."""

    def peak(self, index: int, /) -> int:
        """The most so far, or since `reset_peak`."""

    def reset_peak(self, index: int, /) -> None:
        """Let the peak be what is allocated now."""

    def watch(self, whether: bool, /) -> None:
        """Call `copies.look` before each operation that may copy between devices, or no longer."""

    def resize(self, storage: Any, size: int, /) -> None:
        """Resize a storage, whose values stay."""


_in_use: Runtime | None = None


def use(made: Runtime) -> None:
    global _in_use
    _in_use = made


def is_in_use() -> bool:
    return _in_use is not None


def in_use() -> Runtime:
    assert _in_use is not None, "no virtual GPUs have been enabled"
    return _in_use


def key() -> str:
    return "CUDA" if in_use().name == "cuda" else "PrivateUse1"


def exchange(index: int) -> int:
    """Set this thread's current device and return the previous one. A negative index changes nothing."""
    return in_use().exchange(existing(index) if index >= 0 else index)


def existing(index: int) -> int:
    """The index if the device exists; otherwise an error as CUDA raises it."""
    name, count = in_use().name, in_use().visible()
    if not 0 <= index < count:
        word = "CUDA" if name == "cuda" else name
        raise RuntimeError(f"{word} error: invalid device ordinal {index}; there are {name}:0 to {name}:{count - 1}")
    return index


def index_of(device: torch.device | str | int | None) -> int:
    """The index of the device, or of the current one where none is given."""
    if device is None:
        return in_use().current()
    if isinstance(device, int):
        return existing(device) if device >= 0 else in_use().current()
    device = torch.device(device)
    if device.type != in_use().name:
        raise ValueError(f"expected a {in_use().name} device, but got {device}")
    return in_use().current() if device.index is None else existing(device.index)


@cache
def known(device: torch.device) -> Device:
    """The `Device` of a torch device."""
    if device.type == in_use().name:
        return Device("gpu", device.index)
    return Device(device.type, 0 if device.type == "cpu" or device.index is None else device.index)
