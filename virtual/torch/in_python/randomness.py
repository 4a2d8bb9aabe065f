"""``torch.Generator(device="vgpu:1")``: a CPU generator that reports a virtual GPU as its device.

torch cannot create generators for a device written in Python, so `torch.Generator` is replaced by a
subclass. Like CUDA's, it has an offset, for DTensor, which sets a seed and an offset (16 bytes)
instead of a full state; the two determine the random numbers that follow.
"""

import struct
from typing import Any
from weakref import WeakValueDictionary

import torch

from xdevice.virtual.torch.private_names import core
from xdevice.virtual.torch.runtime import NAME, index_of

_Plain: Any = core.Generator
_64_BITS = (1 << 64) - 1

# by address, since kernels receive new Python objects of the same C++ generators
_generators: WeakValueDictionary[int, Any] = WeakValueDictionary()


class _AlsoPlain(type(_Plain)):  # type: ignore[misc]  # the metaclass of C classes
    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, _Plain)

    def __subclasscheck__(self, subclass: type) -> bool:
        return issubclass(subclass, _Plain)


class Generator(_Plain, metaclass=_AlsoPlain):  # type: ignore[misc]  # a C class, Any to checkers
    _index: int
    _seed = _offset = 0

    def __new__(cls, device: Any = "cpu") -> Any:
        device = torch.device(device)
        if device.type != NAME:
            return _Plain(device)
        generator = super().__new__(cls)
        generator._index = index_of(device)
        _generators[generator._cdata] = generator
        return generator

    def __init__(self, device: Any = "cpu") -> None:
        super().__init__()
        self._seed = self.initial_seed()

    @property
    def device(self) -> torch.device:
        return torch.device(NAME, self._index)

    def manual_seed(self, seed: int) -> Any:
        super().manual_seed(seed)
        self._seed, self._offset = super().initial_seed(), 0
        return self

    def seed(self) -> int:
        self._seed, self._offset = super().seed(), 0
        return self._seed

    def initial_seed(self) -> int:
        return self._seed or int(super().initial_seed())

    def get_offset(self) -> int:
        return self._offset

    def set_offset(self, offset: int) -> None:
        self._offset = offset
        self._seed_from_offset()

    def get_state(self) -> torch.Tensor:
        suffix = struct.pack("=QQ", self._seed, self._offset)
        return torch.cat([super().get_state(), torch.tensor(list(suffix), dtype=torch.uint8)])

    def set_state(self, state: torch.Tensor) -> Any:
        if state.numel() < 16:
            raise RuntimeError("RNG state is wrong size")
        if state.numel() > 16:
            super().set_state(state[:-16].clone())
        self._seed, self._offset = struct.unpack("=QQ", bytes(state[-16:].tolist()))
        if state.numel() == 16:
            self._seed_from_offset()
        return self

    def clone_state(self) -> Any:
        clone = type(self)(self.device)
        clone.set_state(self.get_state())
        return clone

    def _seed_from_offset(self) -> None:
        """Seed by splitmix64 of the seed and the offset, as compiled virtual GPUs do."""
        z = self._seed + 0x9E3779B97F4A7C15 * (self._offset + 1) & _64_BITS
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _64_BITS
        z = (z ^ z >> 27) * 0x94D049BB133111EB & _64_BITS
        super().manual_seed(z ^ z >> 31)


def check(generator: Any, index: int) -> None:
    """Raise an error like CUDA's unless the generator belongs to that virtual GPU."""
    device = _generators.get(generator._cdata, generator).device
    if device != torch.device(NAME, index):
        raise RuntimeError(f"Expected a '{NAME}:{index}' generator device but found '{device}'")
