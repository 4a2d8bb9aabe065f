"""Computing: compilers, gradients, reductions, mathematics, and operations across devices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Protocol, TypeAlias

from xdevice.contract.native import Block, Function, Tensor, Vector

__all__ = [
    "Call",
    "Collectives",
    "Compiling",
    "Differentiation",
    "Extension",
    "Gradients",
    "Maths",
    "Mixing",
    "Numerics",
]

Arguments: TypeAlias = Sequence[Any]
Options: TypeAlias = dict[str, Any]
OtherResults: TypeAlias = Any
"""What a differentiated function returns beside its value."""

Names: TypeAlias = Mapping[str, Any]
"""Functions, dtypes and constants by name."""


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


class Mixing(Protocol):
    """Operations on tensors of several devices."""

    def forbid(self) -> Block:
        """A context in which such an operation raises `MixedDeviceError`.

        In every thread, if that is possible.
        """
