"""The virtual GPUs: their number, the current one, and their random number generators."""

from __future__ import annotations

import threading

import torch

from xdevice.device import Device

NAME = "vgpu"

count = 0
"""The number of virtual GPUs; 0 until `enable`."""

used = False
"""Whether a virtual GPU has been used: ``torch.vgpu.is_initialized()``."""

forbidden = False
"""Whether a strict block is open: then mixing devices raises `MixedDeviceError`."""

forked = False
"""Whether this process was forked from one with virtual GPUs; they cannot be used here."""

generators: list[torch.Generator] = []
"""One per device, as on real GPUs: drawing on the CPU does not affect them."""


class _Current(threading.local):
    index = 0


_current = _Current()


def current() -> int:
    """This thread's current device, meant by ``vgpu`` without an index."""
    return _current.index


def exchange(index: int) -> int:
    """Set this thread's current device and return the previous one. A negative index changes nothing."""
    global used
    before = _current.index
    if index >= 0:
        _current.index = existing(index)
        used = True
    return before


def existing(index: int) -> int:
    """The index if the device exists; otherwise an error as CUDA raises it."""
    if not 0 <= index < count:
        raise RuntimeError(f"{NAME} error: invalid device ordinal {index}; there are {NAME}:0 to {NAME}:{count - 1}")
    return index


def index_of(device: torch.device | str | int | None) -> int:
    """The index of the device, or of the current one where none is given."""
    if device is None:
        return _current.index
    if isinstance(device, int):
        return existing(device) if device >= 0 else _current.index
    device = torch.device(device)
    if device.type != NAME:
        raise ValueError(f"expected a {NAME} device, but got {device}")
    return _current.index if device.index is None else existing(device.index)


def known(device: torch.device) -> Device:
    """The `Device` of a torch device."""
    if device.type == NAME:
        return Device("gpu", device.index)
    return Device(device.type, 0 if device.type == "cpu" or device.index is None else device.index)
