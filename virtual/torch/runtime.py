"""The virtual GPUs of this process: what a way of making them provides, and the one in use."""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from xdevice.device import Device
from xdevice.machine import host_memory
from xdevice.virtual import request

NAME = "vgpu"
"""Their device type in torch, unless they stand in for CUDA's."""

Which = torch.device | str | int | None


class Runtime:
    """A way of making virtual GPUs; devices are given by index, and memory is in bytes."""

    start: Callable[[], None]  # registers the devices with torch, and what computes on them
    visible: Callable[
        [], int
    ]  # how many there are for the program, which hides others by CUDA_VISIBLE_DEVICES
    current: Callable[
        [], int
    ]  # this thread's current device, meant by a device type without an index
    exchange: Callable[
        [int], int
    ]  # makes another current, which exists, and returns the previous one; -1 changes none
    is_used: Callable[
        [], bool
    ]  # whether one has been used: is_initialized() of torch.vgpu and torch.cuda
    use: Callable[[bool], None]  # notes that one has been used, or that none has yet
    is_forked: Callable[
        [], bool
    ]  # whether this process comes from one that had used them; they cannot be used here
    allocated: Callable[[int], int]  # by live tensors
    peak: Callable[
        [int], int
    ]  # the most so far, or since reset_peak, which lets it be what is allocated now
    reset_peak: Callable[[int], None]
    watch: Callable[
        [bool], None
    ]  # whether to call copies.look before operations that may copy between devices
    resize: Callable[[Any, int], None]  # resizes a storage, whose values stay

    def __init__(self, name: str, count: int, capacity: int, limited: bool) -> None:
        self.name = name  # their device type in torch: vgpu, or cuda while they stand in for CUDA's
        self.count = count
        self.capacity = capacity  # the memory of each, as far as it is told
        self.limited = limited  # whether tensors may not exceed the capacity
        self.generators: list[
            torch.Generator
        ] = []  # the defaults: as on real GPUs, the CPU's draws do not affect them


_in_use: Runtime | None = None


def use(made: Runtime) -> None:
    global _in_use
    _in_use = made


def is_in_use() -> bool:
    return _in_use is not None


def in_use() -> Runtime:
    assert _in_use is not None, "no virtual GPUs have been enabled"
    return _in_use


def is_faithful() -> bool:
    """Whether virtual GPUs refuse what CUDA refuses: those that stand in for it do, unless they are lenient."""
    return in_use().name == "cuda" and not request.current().lenient


def key() -> str:
    return "CUDA" if in_use().name == "cuda" else "PrivateUse1"


def memory_info(index: int) -> tuple[int | None, int | None]:
    """Free and total memory, of the host where the virtual GPU has no limit; ``None`` where unknown."""
    virtual = in_use()
    if virtual.limited:
        return max(virtual.capacity - virtual.allocated(index), 0), virtual.capacity
    total, free = host_memory()
    return free, total


def exchange(index: int) -> int:
    """Set this thread's current device and return the previous one. A negative index changes nothing."""
    return in_use().exchange(existing(index) if index >= 0 else index)


def existing(index: int) -> int:
    """The index if the device exists; otherwise an error as CUDA raises it."""
    name, count = in_use().name, in_use().visible()
    if 0 <= index < count:
        return index
    devices = f"{name}:0 to {name}:{count - 1}"
    if name != "cuda":
        raise RuntimeError(f"{name} error: invalid device ordinal {index}; there are {devices}")
    words = "CUDA error: invalid device ordinal\nGPU device may be out of range, do you have enough GPUs?"
    error: Any = torch.AcceleratorError(f"{words} There are {devices}")
    error.error_code = 101  # CUDA's number of it
    raise error


def index_of(device: Which) -> int:
    """The index of the device, or of the current one where none is given."""
    if isinstance(device, (str, torch.device)):
        there = torch.device(device)
        if there.type != in_use().name:
            raise ValueError(f"expected a {in_use().name} device, but got {there}")
        device = there.index
    return in_use().current() if device is None or device < 0 else existing(device)


@cache
def known(device: torch.device) -> Device:
    if device.type == in_use().name:
        return Device("gpu", device.index)
    return Device(device.type, 0 if device.type == "cpu" or device.index is None else device.index)
