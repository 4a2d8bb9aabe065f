"""Which virtual GPUs there are, which one is current, and each one's random numbers."""

from __future__ import annotations

import threading

import torch

from xdevice.device import Device

NAME = "vgpu"

count = 0
"""How many there are; 0 until `enable`."""

used = False
"""Whether one of them has been used: from then on torch takes the devices for initialized."""

forbidden = False
"""Whether a strict block is open: then mixing devices is xdevice's error, not torch's."""

forked = False
"""Whether this process was forked from one that has them: then it has none."""

generators: list[torch.Generator] = []
"""Each one's own, as on real GPUs: numbers drawn on the CPU do not shift those drawn here."""


class _Current(threading.local):
    index = 0


_current = _Current()


def current() -> int:
    """This thread's current device, which ``vgpu`` without an index means."""
    return _current.index


def exchange(index: int) -> int:
    """Make another device this thread's current one; returns the one before. Negative changes nothing."""
    global used
    before = _current.index
    if index >= 0:
        _current.index = existing(index)
        used = True
    return before


def existing(index: int) -> int:
    """The index, if there is such a device; CUDA's error where there is none."""
    if not 0 <= index < count:
        raise RuntimeError(f"{NAME} error: invalid device ordinal {index}; there are {NAME}:0 to {NAME}:{count - 1}")
    return index


def index_of(device: torch.device | str | int | None) -> int:
    """The index that is meant: of an existing device, else the current one."""
    if device is None:
        return _current.index
    if isinstance(device, int):
        return existing(device) if device >= 0 else _current.index
    device = torch.device(device)
    if device.type != NAME:
        raise ValueError(f"expected a {NAME} device, but got {device}")
    return _current.index if device.index is None else existing(device.index)


def known(device: torch.device) -> Device:
    """xdevice's device for a tensor's."""
    if device.type == NAME:
        return Device("gpu", device.index)
    return Device(device.type, 0 if device.type == "cpu" or device.index is None else device.index)
