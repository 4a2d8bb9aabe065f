"""Tensors: where they are, what holds them, making, moving and exchanging them."""

# the body of a Protocol's method is its docstring
# pyright: reportReturnType=false

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal, Protocol

from xdevice.device import Device

if TYPE_CHECKING:
    import numpy as np

Role = Literal["tensor", "model", "device", "data"]
"""What a class is to its framework: a tensor (or parameter), a holder of tensors, a native device, or
something without tensors: a dtype, a shape, a layout."""


class Placement(Protocol):
    """Where tensors are, and moving them."""

    def role(self, cls: type) -> Role | None:
        """What this class is to the framework; ``None`` if it is not the framework's."""

    def device_of(self, tensor: Any) -> Device:
        """Where it is. `MixedDeviceError` for several, `UnknownPlacementError` where unknowable.

        `TracedTensorError` where a compiler traces the tensor: `xdevice.device_of` then returns a device that is not
        known yet. A framework whose arrays have no place, or are in memory that the CPU and the GPU share, has one
        device: the kind that it computes on by default, ``count`` 1. Every array is there, and nothing is moved.
        """

    def move(self, tensor: Any, device: Device, non_blocking: bool) -> Any:
        """The tensor on another device, gradients flowing through. Blocks unless told not to."""

    def copy(self, tensor: Any) -> Any:
        """The tensor in memory of its own on the same device, gradients flowing through."""


class Trees(Protocol):
    """The framework's registry of containers: pytrees."""

    def is_node(self, cls: type) -> bool:
        """Whether the class is registered; Python's own containers do not count."""

    def opened(self, node: Any) -> tuple[list[Any], list[str], Callable[[list[Any]], Any], Any]:
        """Its parts, how each would be written behind it (``.x``, ``[0]``), what rebuilds it from new parts.

        Last, what it keeps besides: static fields, which stay as they are.
        """


class Data(Protocol):
    """Tensors that are not only of numbers."""

    def is_data(self, tensor: Any) -> bool:
        """Whether it is plain data where it is beside other tensors: a scalar, text, objects."""


class Models(Protocol):
    """Models: what the framework keeps parameters in."""

    def tensors_of(self, model: Any) -> Iterable[tuple[str, Any]]:
        """Each parameter and buffer with its dotted name. `UnknownPlacementError` if not built."""

    def move_model(self, model: Any, device: Device) -> Any:
        """Move as the framework moves a model, in place where it does that."""

    def keep(self, model: Any) -> Callable[[], None]:
        """Remember the model's tensors; the function returned puts them back as they are now, where they are now."""

    def copy_models(self, models: list[Any]) -> list[Any]:
        """Models of their own with equal parameters, on the same devices; what they share stays shared."""


class Compiling(Protocol):
    """The framework's compiler of functions: what it sees of a `scope`."""

    def is_tracing(self) -> bool:
        """Whether it traces a function in this thread."""


class Following(Protocol):
    """Compiled functions that can follow a scope which the framework does not see."""

    def follow(self, missing: Callable[[], AbstractContextManager[Any] | None]) -> None:
        """Enter what ``missing`` gives, if anything, around each call of a compiled function from now on."""


class Tracing(Protocol):
    """What compiled functions were traced with."""

    def trace_apart(self, number: int) -> None:
        """Keep what is traced from now on, in every thread, apart from what is traced under other numbers."""


class Creation(Protocol):
    """New tensors. A device of ``None`` is the framework's own default, a dtype likewise."""

    def dtype(self, name: str) -> Any:
        """The framework's dtype of that NumPy name (``float32``), or ``None`` if it has none."""

    def tensor(self, data: Any, dtype: Any, device: Device | None) -> Any:
        """Always a copy. ``data``: numbers, nested sequences, a NumPy array, an own tensor."""

    def empty(self, shape: tuple[int, ...], dtype: Any, device: Device | None) -> Any: ...
    def zeros(self, shape: tuple[int, ...], dtype: Any, device: Device | None) -> Any: ...
    def ones(self, shape: tuple[int, ...], dtype: Any, device: Device | None) -> Any: ...
    def full(self, shape: tuple[int, ...], value: Any, dtype: Any, device: Device | None) -> Any: ...
    def arange(self, start: Any, stop: Any, step: Any, dtype: Any, device: Device | None) -> Any: ...
    def rand(self, shape: tuple[int, ...], dtype: Any, device: Device | None) -> Any: ...
    def randn(self, shape: tuple[int, ...], dtype: Any, device: Device | None) -> Any: ...
    def seed(self, n: int) -> None:
        """Seed the framework's generators on every device."""


class Exchange(Protocol):
    """Out of the framework."""

    def to_numpy(self, tensor: Any) -> np.ndarray[Any, Any]:
        """A NumPy array on the host that shares no memory with the tensor and may be written."""


class Sharing(Protocol):
    """Memory on the CPU shared with other frameworks, through DLPack."""

    def export(self, tensor: Any) -> tuple[Any, bool] | None:
        """An object with ``__dlpack__`` on the memory of a tensor on the CPU, and whether the tensor may be written.

        ``None`` where the memory cannot be shared, or sharing it could go wrong.
        """

    def adopt(self, exporter: Any, writable: bool) -> Any:
        """A tensor on the memory of what `export` gave; ``None`` where this framework would have to copy it.

        A framework whose tensors may be written must not adopt memory that may not be, and one whose tensors
        never change must not adopt memory that may be written. Whatever it raises means ``None`` too.
        """
