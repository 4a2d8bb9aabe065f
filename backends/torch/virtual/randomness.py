"""``torch.Generator(device="vgpu:1")``: a CPU generator that reports a virtual GPU as its device.

torch cannot create generators for a device written in Python, so `torch.Generator` becomes a subclass.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakValueDictionary

import torch

from xdevice.backends.torch.virtual.devices import NAME, index_of
from xdevice.backends.torch.virtual.internals import core

_Plain: Any = core.Generator
_made: WeakValueDictionary[int, Any] = WeakValueDictionary()  # by address: kernels receive new wrappers


class _AlsoPlain(type(_Plain)):  # type: ignore[misc]  # the metaclass of C classes
    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, _Plain)

    def __subclasscheck__(self, subclass: type) -> bool:
        return issubclass(subclass, _Plain)


class Generator(_Plain, metaclass=_AlsoPlain):  # type: ignore[misc]  # a C class, Any to checkers
    """`torch.Generator` with support for virtual GPUs."""

    _index: int

    def __new__(cls, device: Any = "cpu") -> Any:
        wanted = torch.device(device)
        if wanted.type != NAME:
            return _Plain(wanted)
        made = super().__new__(cls)
        made._index = index_of(wanted)
        _made[made._cdata] = made
        return made

    def __init__(self, device: Any = "cpu") -> None:
        super().__init__()

    @property
    def device(self) -> torch.device:
        return torch.device(NAME, self._index)


def check(given: Any, index: int) -> None:
    """Raise CUDA's error unless the generator belongs to that virtual GPU."""
    device = _made.get(given._cdata, given).device
    if device != torch.device(NAME, index):
        raise RuntimeError(f"Expected a '{NAME}:{index}' generator device but found '{device}'")


def take_generators() -> None:
    """Replace ``torch.Generator``."""
    core: Any = torch
    core.Generator = Generator
