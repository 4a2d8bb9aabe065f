"""The virtual GPUs: their number, the current one, and their random number generators."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Protocol

import torch

from xdevice.device import Device

if TYPE_CHECKING:
    from collections.abc import Callable

    from xdevice.backends.torch.virtual.plug_in import PlugIn

NAME = "vgpu"

name = NAME
"""Their device type in torch: ``vgpu``, or ``cuda`` while they stand in for CUDA's."""

count = 0
"""The number of virtual GPUs; 0 until `enable`."""

plug_in: PlugIn | None = None
"""The compiled implementation; ``None`` for the one in Python."""


class Guard(Protocol):
    """What keeps each thread's current device in C++, by its index."""

    @property
    def current(self) -> Callable[[], int]: ...
    @property
    def exchange(self) -> Callable[[int], int]: ...


guard: Guard | None = None
"""``None`` where the current device is kept here."""

capacity = 0
"""Bytes of memory of each, as far as they are told."""

limited = False
"""Whether memory ends there, with torch's error."""

forbidden = False
"""Whether a strict block is open: then mixing devices raises `MixedDeviceError`."""

_used = False
_forked = False

generators: list[torch.Generator] = []
"""One per device, as on real GPUs: drawing on the CPU does not affect them."""


class _Current(threading.local):
    index = 0


_current = _Current()


def key() -> str:
    """The dispatch key of their operations."""
    return "CUDA" if name == "cuda" else "PrivateUse1"


def current() -> int:
    """This thread's current device, meant by a device type without an index."""
    return _current.index if guard is None else guard.current()


def exchange(index: int) -> int:
    """Set this thread's current device and return the previous one. A negative index changes nothing."""
    if index >= 0:
        existing(index)
        use()
    if guard is not None:
        return guard.exchange(index)
    before = _current.index
    if index >= 0:
        _current.index = index
    return before


def is_used() -> bool:
    """Whether a virtual GPU has been used: ``is_initialized()`` of ``torch.vgpu`` and ``torch.cuda``."""
    return _used if plug_in is None else bool(plug_in.used())


def use(whether: bool = True) -> None:
    """Note that a virtual GPU has been used, or that none has yet."""
    global _used
    _used = whether
    if plug_in is not None:
        plug_in.use(whether)


def is_forked() -> bool:
    """Whether this process was forked from one that had used virtual GPUs; they cannot be used here."""
    return _forked if plug_in is None else bool(plug_in.forked())


def close() -> None:
    """Note that this process was forked."""
    global _forked
    _forked = True


def forbid(whether: bool) -> None:
    """Let mixing devices raise `MixedDeviceError`, or torch's error again."""
    global forbidden
    forbidden = whether
    if plug_in is not None:
        plug_in.forbid(whether)


def existing(index: int) -> int:
    """The index if the device exists; otherwise an error as CUDA raises it."""
    if not 0 <= index < count:
        word = "CUDA" if name == "cuda" else name
        raise RuntimeError(f"{word} error: invalid device ordinal {index}; there are {name}:0 to {name}:{count - 1}")
    return index


def index_of(device: torch.device | str | int | None) -> int:
    """The index of the device, or of the current one where none is given."""
    if device is None:
        return current()
    if isinstance(device, int):
        return existing(device) if device >= 0 else current()
    device = torch.device(device)
    if device.type != name:
        raise ValueError(f"expected a {name} device, but got {device}")
    return current() if device.index is None else existing(device.index)


def known(device: torch.device) -> Device:
    """The `Device` of a torch device."""
    if device.type == name:
        return Device("gpu", device.index)
    return Device(device.type, 0 if device.type == "cpu" or device.index is None else device.index)
