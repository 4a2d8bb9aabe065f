"""Tensors: where they are, what holds them, making, moving and exchanging them, and computing with them."""

# the body of a Protocol's method is its docstring
# pyright: reportReturnType=false

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, Protocol

from xdevice.device import Device

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "Call",
    "Collectives",
    "Compiling",
    "Creation",
    "Data",
    "Differentiation",
    "Exchange",
    "Extension",
    "Fft",
]
__all__ += [
    "Following",
    "Gradients",
    "Linalg",
    "Maths",
    "Models",
    "Packing",
    "Placement",
    "Role",
    "Sharing",
    "Storage",
]
__all__ += ["Tracing", "Trees"]

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
    def full(
        self, shape: tuple[int, ...], value: Any, dtype: Any, device: Device | None
    ) -> Any: ...
    def arange(
        self, start: Any, stop: Any, step: Any, dtype: Any, device: Device | None
    ) -> Any: ...
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


class Differentiation(Protocol):
    """How a function is to be differentiated: hashable, and without the function itself."""

    def bind(self, fn: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Call:
        """The call of a function with these arguments, to be differentiated in this way."""


class Call(Protocol):
    """A function with its arguments, called with variables in place of the tensors to differentiate for."""

    fn: Callable[..., Any]
    args: Sequence[Any]
    kwargs: dict[str, Any]

    @property
    def how(self) -> Differentiation: ...

    def paths(self) -> list[str]:
        """Where the tensors to differentiate for are in their arguments, in order."""

    def __call__(self, variables: list[Any]) -> tuple[Any, Any]:
        """A tensor of one number, and whatever else the function returns."""


class Gradients(Protocol):
    """The framework's automatic differentiation, as a function."""

    def is_floating(self, tensor: Any) -> bool:
        """Whether the tensor is of floating-point numbers, so that it can have a gradient."""

    def value_and_gradients(
        self, call: Call, parameters: list[Any], nested: bool
    ) -> tuple[Any, Any, list[Any]]:
        """``call(variables)`` returns a tensor of one number, and more; its value, that, and the gradients.

        The variables stand for the parameters one by one, each an object of its own. A gradient is on its
        parameter's device, zeros where the value does not depend on it. The value is detached, unless this is
        ``nested`` in another call: then value and gradients can be differentiated in their turn.
        """


class Collectives(Protocol):
    """Several tensors at once: in parts, in one piece, added up. The core has checked that they fit."""

    def kind(self, tensor: Any) -> str:
        """NumPy's letter for the dtype's kind: ``f`` (bfloat16 too), ``i``, ``u``, ``b``, ``c``; ``O`` for others.

        `ArgumentTypeError` for a tensor that is not one plain array: sparse, ragged, masked; it says how to make one.
        """

    def split(self, tensor: Any, sizes: Sequence[int]) -> list[Any]:
        """Parts of that many rows each along the first axis, on the tensor's device; they may share its memory.

        `NotSupportedError` for a kind of tensor that the framework cannot split.
        """

    def leaf(self, tensor: Any) -> Any:
        """The tensor that was just copied, of no graph, and ready for gradients where the framework marks that."""

    def pack(self, tensors: Sequence[Any]) -> Any:
        """One new vector of all their numbers, of no graph; they are on one device and of one dtype.

        Gradients may be sparse where the framework makes such.
        """

    def unpack(self, vector: Any, like: Sequence[Any]) -> list[Any]:
        """The vector's numbers in the shapes of those tensors, in memory of their own where they can be written."""

    def reduce(self, vectors: Sequence[Any], op: str, weights: Sequence[float] | None) -> Any:
        """Their ``sum``, ``max`` or ``min``, element by element, each times its weight: a new vector.

        They are on one device, of one dtype and length; there is one at least.
        """

    def threads(self) -> Callable[[], AbstractContextManager[Any]] | None:
        """What another thread enters to compute as this one does now; its settings may be this thread's own.

        ``None`` if gradients are not to be computed in several threads at once.
        """


class Packing(Protocol):
    """Which tensors travel to a device sooner as one vector, by `Collectives.pack` and ``unpack``."""

    def is_packable(self, tensor: Any, nbytes: int) -> bool:
        """Whether a vector gives the tensor back as it is, and it has at most ``nbytes``.

        Then it is dense, of no graph, and not empty.
        """


class Maths(Protocol):
    """The framework's arrays under the array API standard's names."""

    def namespace(self) -> Mapping[str, Any]:
        """Each of `xdevice.tensors.namespace.NAMES` that the framework has, with what it stands for."""

    def module(self) -> ModuleType:
        """The framework's module with the functions that are not in that list."""


class Linalg(Maths, Protocol):
    """The same for the standard's extension ``linalg``, whose names are in `LINALG`."""


class Fft(Maths, Protocol):
    """The same for the standard's extension ``fft``, whose names are in `FFT`."""


@dataclass(frozen=True)
class Extension:
    """An extension, in place of a module: what gives its functions by name, and the framework's own module."""

    functions: Callable[[], Mapping[str, Any]]
    own: ModuleType

    def namespace(self) -> Mapping[str, Any]:
        return self.functions()

    def module(self) -> ModuleType:
        return self.own


class Storage(Protocol):
    """The bits of numbers that NumPy has no dtype for: bfloat16, floats of 8 bits."""

    def to_bits(self, tensor: Any) -> np.ndarray[Any, Any]:
        """The values' bytes on the host, in order: a vector of uint8."""

    def from_bits(
        self, bits: np.ndarray[Any, Any], shape: tuple[int, ...], dtype: Any, device: Device
    ) -> Any:
        """A new tensor of what `to_bits` gave, of one of the framework's own dtypes."""
