"""Computing: gradients, several tensors at once, the array API standard, bits."""

# the body of a Protocol's method is its docstring
# pyright: reportReturnType=false

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

from xdevice.device import Device

if TYPE_CHECKING:
    import numpy as np


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

    def value_and_gradients(self, call: Call, parameters: list[Any], nested: bool) -> tuple[Any, Any, list[Any]]:
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
        """Each of `xdevice.tensors.array_api.names.NAMES` that the framework has, with what it stands for."""

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

    def from_bits(self, bits: np.ndarray[Any, Any], shape: tuple[int, ...], dtype: Any, device: Device) -> Any:
        """A new tensor of what `to_bits` gave, of one of the framework's own dtypes."""
