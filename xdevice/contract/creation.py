"""New tensors."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

from xdevice.contract.native import NativeDtype, Tensor
from xdevice.device import Device

__all__ = ["Creation"]

TensorData: TypeAlias = Any
"""Numbers, nested sequences, a NumPy array, or a tensor of the framework."""

Number: TypeAlias = Any
"""A number of Python, NumPy or the framework."""


class Creation(Protocol):
    """New tensors.

    A device or a dtype of ``None`` is the framework's default.
    """

    def dtype(self, name: str) -> NativeDtype | None:
        """The framework's dtype of that NumPy name, ``float32`` for example.

        ``None`` if the framework has none.
        """

    def tensor(self, data: TensorData, dtype: NativeDtype | None, device: Device | None) -> Tensor:
        """A tensor with a copy of the data.

        The data are numbers, nested sequences, a NumPy array, or a tensor of
        the framework.
        """

    def empty(
        self, shape: tuple[int, ...], dtype: NativeDtype | None, device: Device | None
    ) -> Tensor: ...
    def zeros(
        self, shape: tuple[int, ...], dtype: NativeDtype | None, device: Device | None
    ) -> Tensor: ...
    def ones(
        self, shape: tuple[int, ...], dtype: NativeDtype | None, device: Device | None
    ) -> Tensor: ...
    def full(
        self,
        shape: tuple[int, ...],
        value: Number,
        dtype: NativeDtype | None,
        device: Device | None,
    ) -> Tensor: ...
    def arange(
        self,
        start: Number,
        stop: Number,
        step: Number,
        dtype: NativeDtype | None,
        device: Device | None,
    ) -> Tensor: ...
    def rand(
        self, shape: tuple[int, ...], dtype: NativeDtype | None, device: Device | None
    ) -> Tensor: ...
    def randn(
        self, shape: tuple[int, ...], dtype: NativeDtype | None, device: Device | None
    ) -> Tensor: ...
    def seed(self, n: int) -> None:
        """Seed the framework's generators on every device."""
