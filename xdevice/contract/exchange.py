"""Exchange of tensors: with NumPy, between frameworks, and with files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from xdevice.contract.native import NativeDtype, Tensor
from xdevice.device import Device

if TYPE_CHECKING:
    import numpy as np

    NumpyArray: TypeAlias = np.ndarray[Any, Any]

__all__ = ["Exchange", "Storage"]

Exporter: TypeAlias = Any
"""An object with ``__dlpack__``."""


class Exchange(Protocol):
    """Copies of tensors in NumPy, and memory on the CPU that frameworks share, through DLPack."""

    def to_numpy(self, tensor: Tensor) -> NumpyArray:
        """A writable NumPy array that shares no memory with the tensor."""

    def export(self, tensor: Tensor) -> tuple[Exporter, bool] | None:
        """An object with ``__dlpack__`` for the memory of a tensor on the CPU.

        Also whether the tensor may be written. ``None`` if the memory cannot
        be shared safely.
        """

    def adopt(self, exporter: Exporter, writable: bool) -> Tensor | None:
        """A tensor on the memory that `export` exported.

        ``None`` if a copy would be needed.

        A framework with writable tensors must not adopt read-only memory, and
        one whose tensors never change must not adopt writable memory. An
        exception means ``None``, too.
        """


class Storage(Protocol):
    """The bits of dtypes that NumPy lacks: bfloat16, floats of 8 bits."""

    def to_bits(self, tensor: Tensor) -> NumpyArray:
        """The bytes of the values, in order, as NumPy's vector of uint8."""

    def from_bits(
        self, bits: NumpyArray, shape: tuple[int, ...], dtype: NativeDtype, device: Device
    ) -> Tensor:
        """A new tensor from the bytes that `to_bits` returned."""
