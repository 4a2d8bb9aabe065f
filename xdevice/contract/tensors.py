"""Tensors: placement, containers, creation, exchange, mathematics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from xdevice.contract.native import Block, Function, Model, NativeDtype, Node, Tensor, Vector
from xdevice.device import Device

if TYPE_CHECKING:
    import numpy as np

    NumpyArray: TypeAlias = np.ndarray[Any, Any]

__all__ = [
    "Call",
    "Category",
    "Collectives",
    "Compiling",
    "Creation",
    "Differentiation",
    "Exchange",
    "Extension",
    "Gradients",
    "Maths",
    "Models",
    "NodeParts",
    "Numerics",
    "Placement",
    "Storage",
]

Category = Literal["tensor", "model", "device", "data"]
"""What a class is to its framework.

A ``tensor`` or parameter, a ``model`` or another object with tensors, a native
``device``, or ``data``, which has no tensors: a dtype, a shape, a layout.
"""

Children: TypeAlias = list[Any]
"""The parts of a node: tensors, other nodes and plain data."""

NodeParts: TypeAlias = tuple[Children, list[str], Callable[[Children], Node], object]
"""A node's children, their paths, a function, and the node's static fields.

A path is what is written after the node for the child: ``.x``, ``[0]``. The
function rebuilds the node from new children. The static fields stay as they
are.
"""

TensorData: TypeAlias = Any
"""Numbers, nested sequences, a NumPy array, or a tensor of the framework."""

Number: TypeAlias = Any
"""A number of Python, NumPy or the framework."""

Exporter: TypeAlias = Any
"""An object with ``__dlpack__``."""

Arguments: TypeAlias = Sequence[Any]
Options: TypeAlias = dict[str, Any]
OtherResults: TypeAlias = Any
"""What a differentiated function returns beside its value."""

Names: TypeAlias = Mapping[str, Any]
"""Functions, dtypes and constants by name."""


class Placement(Protocol):
    """Where tensors are, and moving them."""

    def category(self, cls: type) -> Category | None:
        """What this class is to the framework.

        ``None`` if it is not the framework's.
        """

    def device_of(self, tensor: Tensor) -> Device:
        """The device of the tensor.

        Raises `MixedDeviceError` for a tensor on several devices,
        `UnknownPlacementError` if the device cannot be known, and
        `TracedTensorError` if a compiler traces the tensor:
        `xdevice.device_of` then returns a device that is not known yet.

        Some frameworks have arrays without a place, or in memory that the CPU
        and the GPU share. They have one device, of the kind that computes by
        default, with ``count`` 1. Every array is on it, and nothing is moved.
        """

    def move(self, tensor: Tensor, device: Device, non_blocking: bool) -> Tensor:
        """The tensor on another device. Gradients flow through.

        Blocks unless ``non_blocking``.
        """

    def copy(self, tensor: Tensor) -> Tensor:
        """The tensor in memory of its own, on the same device.

        Gradients flow through.
        """

    def move_many(self, tensors: list[Tensor], device: Device, non_blocking: bool) -> list[Tensor]:
        """The tensors on another device, in order, as `move` moves each.

        For a framework that moves several sooner together. After an error,
        xdevice moves back those that are moved in place.
        """

    def is_data(self, tensor: Tensor) -> bool:
        """Whether the tensor is plain data: a scalar, text, objects.

        For a framework whose tensors may contain something other than numbers.
        """


class Models(Protocol):
    """Objects of the framework with parts: models, and containers that are registered with it."""

    def is_node(self, cls: type) -> bool:
        """Whether the class is registered as a container: a pytree.

        Python's own containers do not count.
        """

    def flatten_one_level(self, node: Node) -> NodeParts:
        """The container's children, with what is needed to rebuild it."""

    def tensors_of(self, model: Model) -> Iterable[tuple[str, Tensor]]:
        """Each parameter and buffer, with its dotted name.

        Raises `UnknownPlacementError` if the model is not built.
        """

    def move_model(self, model: Model, device: Device) -> Model:
        """Move the model, in place if the framework moves it in place."""

    def keep(self, model: Model) -> Callable[[], None]:
        """A function that restores the model's tensors as they are now.

        It restores their values and their devices.
        """

    def copy_models(self, models: list[Model]) -> list[Model]:
        """Copies of the models on the same devices.

        Parameters that models share stay shared.
        """


class Compiling(Protocol):
    """The framework's compilers of functions.

    A compiled function keeps the devices with which it was traced. So a factory
    in it refuses a `scope` that the framework does not see, as in a coroutine.
    """

    def is_tracing(self) -> bool:
        """Whether the compiler traces a function in this thread."""

    def compilers(self) -> tuple[str, ...]:
        """The names of the compilers; the first one needs nothing but the framework."""

    def compiled(self, fn: Function, compiler: str) -> Function:
        """The function, compiled by one of them when it is called.

        Arguments and results may hold other objects than tensors.
        `NotSupportedError` if the framework cannot compile such a function.
        """


class Numerics(Protocol):
    """Settings on which the last digits of results depend."""

    def comparable(self, x64: bool) -> Block:
        """A block whose results can be compared with another framework's.

        Products of matrices have the precision of their dtype, and the fastest
        order of additions is not chosen. With ``x64``, dtypes of 64 bits exist.
        """


class Creation(Protocol):
    """New tensors.

    A device or a dtype of ``None`` is the framework's default.
    """

    def dtype(self, name: str) -> NativeDtype | None:
        """The framework's dtype of that NumPy name, ``float32`` for example.

        ``None`` if the framework has none.
        """

    def tensor(self, data: TensorData, dtype: NativeDtype, device: Device | None) -> Tensor:
        """A tensor with a copy of the data.

        The data are numbers, nested sequences, a NumPy array, or a tensor of
        the framework.
        """

    def empty(
        self, shape: tuple[int, ...], dtype: NativeDtype, device: Device | None
    ) -> Tensor: ...
    def zeros(
        self, shape: tuple[int, ...], dtype: NativeDtype, device: Device | None
    ) -> Tensor: ...
    def ones(self, shape: tuple[int, ...], dtype: NativeDtype, device: Device | None) -> Tensor: ...
    def full(
        self, shape: tuple[int, ...], value: Number, dtype: NativeDtype, device: Device | None
    ) -> Tensor: ...
    def arange(
        self,
        start: Number,
        stop: Number,
        step: Number,
        dtype: NativeDtype,
        device: Device | None,
    ) -> Tensor: ...
    def rand(self, shape: tuple[int, ...], dtype: NativeDtype, device: Device | None) -> Tensor: ...
    def randn(
        self, shape: tuple[int, ...], dtype: NativeDtype, device: Device | None
    ) -> Tensor: ...
    def seed(self, n: int) -> None:
        """Seed the framework's generators on every device."""


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


class Differentiation(Protocol):
    """How to differentiate a function.

    It is hashable and does not contain the function.
    """

    def bind(self, fn: Function, args: Arguments, kwargs: Options) -> Call:
        """The call of a function, to be differentiated in this way."""


class Call(Protocol):
    """A function with its arguments.

    A call replaces the tensors to differentiate for.
    """

    fn: Function
    args: Arguments
    kwargs: Options

    @property
    def how(self) -> Differentiation: ...

    def paths(self) -> list[str]:
        """The paths of the tensors to differentiate for, in order."""

    def __call__(self, variables: list[Tensor]) -> tuple[Tensor, OtherResults]:
        """A tensor with one number, and the function's other results."""


class Gradients(Protocol):
    """The framework's automatic differentiation, as a function."""

    def is_floating(self, tensor: Tensor) -> bool:
        """Whether the tensor has floating-point numbers.

        Then it can have a gradient.
        """

    def value_and_gradients(
        self, call: Call, parameters: list[Tensor], nested: bool
    ) -> tuple[Tensor, OtherResults, list[Tensor]]:
        """The value, the function's other results, and the gradients.

        ``call(variables)`` returns a tensor with one number, the value, and
        the other results. There is one variable for each parameter, each a
        different object. A gradient is on its parameter's device, and zero if
        the value does not depend on the parameter. The value is detached,
        unless the call is ``nested`` in another: then value and gradients can
        be differentiated again.
        """


class Collectives(Protocol):
    """Splitting, packing and reducing tensors.

    The core has checked that they fit together.
    """

    def kind(self, tensor: Tensor) -> str:
        """NumPy's letter for the dtype's kind.

        ``f``, ``i``, ``u``, ``b`` or ``c``; ``O`` for others.

        bfloat16 has ``f``. Raises `ArgumentTypeError` for a tensor that is not
        a plain array, such as a sparse, ragged or masked one; the error says
        how to make one.
        """

    def split(self, tensor: Tensor, sizes: Sequence[int]) -> list[Tensor]:
        """Parts with that many rows each, on the tensor's device.

        They may share its memory. Raises `NotSupportedError` for a kind of
        tensor that the framework cannot split.
        """

    def leaf(self, tensor: Tensor) -> Tensor:
        """A tensor that was just copied, as a leaf of the graph.

        A leaf can have a gradient.
        """

    def pack(self, tensors: Sequence[Tensor]) -> Vector:
        """One new, detached vector of all numbers of the tensors.

        These are on one device and have one dtype.

        The tensors may be sparse gradients, if the framework makes those.
        """

    def unpack(self, vector: Vector, like: Sequence[Tensor]) -> list[Tensor]:
        """The vector's numbers in the shapes of those tensors.

        Writable tensors have memory of their own.
        """

    def reduce(self, vectors: Sequence[Vector], op: str, weights: Sequence[float] | None) -> Vector:
        """The elementwise ``sum``, ``max`` or ``min`` as a new vector.

        There is at least one. They are on one device and have one dtype and
        one length.
        """

    def threads(self) -> Callable[[], Block] | None:
        """A function whose contexts give another thread this thread's settings.

        ``None`` if several threads must not compute gradients at once. No two
        threads compute on the same device.
        """

    def is_packable(self, tensor: Tensor, nbytes: int) -> bool:
        """Whether the tensor has at most ``nbytes``, and reaches a device sooner in a vector.

        The vector must carry the tensor unchanged.

        Such a tensor is dense, detached and not empty.
        """


@dataclass(frozen=True)
class Extension:
    """One of the standard's extensions: its functions by name, and the framework's own module."""

    functions: Callable[[], Names]
    own_module: ModuleType

    def namespace(self) -> Names:
        return self.functions()

    def module(self) -> ModuleType:
        return self.own_module


class Maths(Protocol):
    """The framework's arrays under the array API standard's names."""

    linalg: Extension  # the names of `xdevice.typing.LinearAlgebra`
    fft: Extension  # those of `xdevice.typing.FourierTransforms`

    def namespace(self) -> Names:
        """The framework's functions, dtypes and constants, by name.

        The names are in `xdevice.tensors.namespace.NAMES`.
        """

    def module(self) -> ModuleType:
        """The framework's module, with further functions of its own."""

    def as_attribute(self, function: Function) -> Function:
        """The function or method, in a form that the framework's compiler calls as it is.

        For a framework whose compiler changes methods.
        """


class Storage(Protocol):
    """The bits of dtypes that NumPy lacks: bfloat16, floats of 8 bits."""

    def to_bits(self, tensor: Tensor) -> NumpyArray:
        """The bytes of the values, in order, as NumPy's vector of uint8."""

    def from_bits(
        self, bits: NumpyArray, shape: tuple[int, ...], dtype: NativeDtype, device: Device
    ) -> Tensor:
        """A new tensor from the bytes that `to_bits` returned."""
