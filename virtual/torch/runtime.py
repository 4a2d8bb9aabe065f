"""The virtual GPUs of this process: the interface of their implementations, and the one in use."""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from xdevice.contract import Request
from xdevice.device import Device
from xdevice.machine import host_memory
from xdevice.virtual import models

NAME = "vgpu"
"""The device type of virtual GPUs in torch, unless they stand in for CUDA GPUs."""

DeviceLike = torch.device | str | int | None


class Runtime:
    """An implementation of virtual GPUs; devices are given by index, and memory is in bytes."""

    start: Callable[[], None]
    """Register the devices and their kernels with torch."""

    def join_machine(self) -> None:
        """Share the GPUs' memory with the program's other processes, where it has a limit."""

    visible: Callable[[], int]
    """The number of devices that the program sees; CUDA_VISIBLE_DEVICES hides others."""

    current: Callable[[], int]
    """This thread's current device, which a device type without an index means."""

    exchange: Callable[[int], int]
    """Make an existing device current and return the previous one; -1 changes nothing."""

    is_used: Callable[[], bool]
    """Whether a device has been used: `is_initialized` of torch.vgpu and torch.cuda."""

    use: Callable[[bool], None]
    """Note whether a device has been used."""

    is_forked: Callable[[], bool]
    """Whether a process that had used the devices forked this one, which cannot use them."""

    allocated: Callable[[int], int]
    """The memory that live tensors hold."""

    reserved: Callable[[int], int]
    """The memory of live tensors, and where it is modelled, that which the allocator has cached."""

    peak: Callable[[int], int]
    """The most memory allocated since the start, or since `reset_peak`."""

    reset_peak: Callable[[int], None]
    """Set the peak to what is allocated now."""

    forget_memory: Callable[[], None]
    """Forget what was allocated and freed: peaks, sums, and what the allocator has cached."""

    def has_thread_of_backward(self, value: bool) -> None:
        """Whether CUDA would run the backward in threads of its own: each has workspaces."""

    watch: Callable[[bool], None]
    """Whether to call `copies.report_copies` before operations that may copy between devices."""

    new_stream: Callable[[int, int], int]
    """The id of a stream of a device, with a priority."""

    unused: Callable[[int], int]
    """The memory of a device's capacity that is not in use."""

    resize: Callable[[Any, int], None]
    """Resize a storage and keep its values."""

    def __init__(self, request: Request) -> None:
        limit = models.memory_of(request)
        self.request = request
        self.name = "cuda" if request.stand_in else NAME  # the device type in torch
        self.count = request.number
        self.capacity = limit or host_memory()[0] or 0  # the memory of each, where it is known
        self.limited = limit is not None  # whether the capacity is enforced
        # the default generators: as on real GPUs, random numbers of the CPU do not affect them
        self.generators: list[torch.Generator] = []


_in_use: Runtime | None = None


def use(runtime: Runtime) -> None:
    global _in_use
    _in_use = runtime


def is_in_use() -> bool:
    return _in_use is not None


def in_use() -> Runtime:
    assert _in_use is not None, "no virtual GPUs have been enabled"
    return _in_use


def is_faithful() -> bool:
    """Whether virtual GPUs refuse what CUDA refuses: those that stand in do, unless lenient."""
    return in_use().request.stand_in and not in_use().request.lenient


def dispatch_key() -> str:
    return "CUDA" if in_use().name == "cuda" else "PrivateUse1"


def memory_info(index: int) -> tuple[int | None, int | None]:
    """Free and total memory, ``None`` where unknown: the host's if the virtual GPU has no limit."""
    virtual = in_use()
    if virtual.limited:
        return virtual.unused(index), virtual.capacity
    total, free = host_memory()
    return free, total


def exchange(index: int) -> int:
    """Set this thread's current device and return the previous one; -1 changes nothing."""
    return in_use().exchange(existing(index) if index >= 0 else index)


def existing(index: int) -> int:
    """The index if the device exists; otherwise an error as CUDA raises it."""
    name, count = in_use().name, in_use().visible()
    if 0 <= index < count:
        return index
    devices = f"{name}:0 to {name}:{count - 1}"
    if name != "cuda":
        raise RuntimeError(f"{name} error: invalid device ordinal {index}; there are {devices}")
    message = (
        "CUDA error: invalid device ordinal\n"
        f"GPU device may be out of range, do you have enough GPUs? There are {devices}"
    )
    error: Any = torch.AcceleratorError(message)
    error.error_code = 101  # cudaErrorInvalidDevice
    raise error


def index_of(device: DeviceLike) -> int:
    """The index of the device, or of the current device if none is given."""
    if isinstance(device, (str, torch.device)):
        parsed = torch.device(device)
        if parsed.type != in_use().name:
            raise ValueError(f"expected a {in_use().name} device, but got {parsed}")
        device = parsed.index
    if device is None or device < 0:
        return in_use().current()
    return existing(device)


@cache
def xdevice_device(device: torch.device) -> Device:
    """The `xdevice.Device` of a device of torch."""
    if device.type == in_use().name:
        return Device("gpu", device.index)
    if device.type == "cpu" or device.index is None:
        return Device(device.type, 0)
    return Device(device.type, device.index)
