"""A pytest plugin for frameworks and devices, and the contract of adapters."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, TypeAlias

from xdevice.framework import choosing
from xdevice.testing.closeness import assert_close
from xdevice.testing.determinism import deterministic

__all__ = ["Native", "assert_close", "deterministic"]

# Objects of the framework that is tested. It is chosen at run time, so no type
# checker knows them.
Tensor: TypeAlias = Any
Model: TypeAlias = Any
NativeDevice: TypeAlias = Any


class Native(Protocol):
    """A framework's own calls: a module, or any object, with these functions.

    Only ``ones`` is required. A promise that needs a missing function is not
    collected: a framework without models has no ``model``. A function that is
    given no device uses the framework's default.
    """

    def ones(self) -> Tensor:
        """A (2, 3) tensor of ones, from the framework's own factory.

        A framework that has only vectors returns a vector of six ones.
        """

    def address(self, x: Tensor) -> int:
        """The address of the tensor's memory."""

    def write(self, x: Tensor, value: float) -> None:
        """Fill a tensor created by xdevice in place.

        Leave the function out if tensors are immutable.
        """

    def owned(self) -> Iterable[Tensor]:
        """One tensor of each of the framework's classes, also of views."""

    def native_devices(self) -> Iterable[tuple[NativeDevice, str]]:
        """Native devices, each with the name of its device in xdevice."""

    def parameter(self, frozen: bool = False) -> Tensor:
        """A trainable parameter, or a frozen one. Needs ``is_frozen``."""

    def is_frozen(self, parameter: Tensor) -> bool:
        """Whether the parameter is frozen: it is not trained."""

    def model(self) -> Model:
        """A dense layer from 3 to 2, then batch normalisation.

        Needs ``parameters``.
        """

    def output(self, model: Model, x: Tensor) -> Tensor:
        """The model's output for a tensor created by xdevice."""

    def parameters(self, model: Model) -> Sequence[Tensor]:
        """The model's parameters, always in the same order."""

    def unbuilt_model(self) -> Model:
        """A model whose parameters do not exist yet."""

    def unfinished(self, x: Tensor) -> AbstractContextManager[tuple[Tensor, Callable[[], bool]]]:
        """A tensor that is still being computed from ``x``, and whether it is complete by now.

        It stays incomplete until the block ends, or for much longer than a call
        takes. Leave it out if the framework computes before a call returns.
        """

    def gradient(self, move: Callable[[Tensor], Tensor]) -> list[float]:
        """The gradient of ``sum(2 * move(x))`` for a new x of three ones.

        Each of its numbers is 2.
        """

    def compiled_loss(self) -> tuple[Callable[[dict[str, Tensor], Tensor], Tensor], list[Any]]:
        """A compiled ``loss(params, x)``, and a list of its compilations.

        The loss is the sum of the squares of ``x @ params["w"] +
        params["b"]``, one number. The list gets one entry each time that the
        function is compiled.
        """

    def compiled(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """The function in the framework's compiled form.

        It is traced at its first call, and may be traced again.
        """

    def mixing_gradient(self, x: Tensor, y: Tensor) -> Callable[[], object]:
        """A function that runs a backward pass, which mixes devices.

        The gradient of x meets y, which is on another device.

        The forward pass runs here, outside `xdevice.strict`, and must succeed.
        """

    def symbolic(self, ask: Callable[[Tensor], object]) -> None:
        """Call ``ask`` with a symbolic tensor, which has no placement yet."""


@cache
def words_in(folder: Path, backend: str) -> ModuleType:
    """The functions of one framework, from the folder's file of that name."""
    _ = choosing.backend(backend).framework  # imports it in an order that is safe beside others
    spec = spec_from_file_location(f"native_{backend}", folder / f"{backend}.py")
    if spec is None or spec.loader is None:
        raise ImportError(f"{folder / backend}.py cannot be imported")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
