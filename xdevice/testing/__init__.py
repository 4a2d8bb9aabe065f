"""Tests on many frameworks and devices: a pytest plugin, and the contract suite that an adapter inherits."""

# the body of a Protocol's method is its docstring
# pyright: reportReturnType=false

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from xdevice.framework import choosing

__all__ = ["Native"]


class Native(Protocol):
    """A framework's own calls: a module, or any object, with these functions.

    Only ``ones`` is required. A promise that needs a missing function is not collected: a framework without
    models has no ``model``. Without a device, a function uses the framework's default device.
    """

    def ones(self) -> Any:
        """A (2, 3) tensor of ones, by the framework's own factory; a vector of six, if it has vectors only."""

    def address(self, x: Any) -> int:
        """The address of the tensor's memory."""

    def write(self, x: Any, value: float) -> None:
        """Fill a tensor made by xdevice in place. Leave it out if tensors are immutable."""

    def owned(self) -> Iterable[Any]:
        """One tensor of every class that the framework has, views and scalars included."""

    def native_devices(self) -> Iterable[tuple[Any, str]]:
        """Native devices, each with the name of the device that it stands for."""

    def parameter(self, frozen: bool = False) -> Any:
        """A trainable parameter, or a frozen one. Needs ``is_frozen``."""

    def is_frozen(self, parameter: Any) -> bool:
        """Whether the parameter is frozen: it is not trained."""

    def model(self) -> Any:
        """A dense layer from 3 to 2, then batch normalisation. Needs ``parameters``."""

    def output(self, model: Any, x: Any) -> Any:
        """The model's output for a tensor made by xdevice."""

    def parameters(self, model: Any) -> Sequence[Any]:
        """The model's parameters, always in the same order."""

    def unbuilt_model(self) -> Any:
        """A model whose parameters do not exist yet."""

    def gradient(self, move: Callable[[Any], Any]) -> list[float]:
        """The gradient of ``sum(2 * move(x))`` with respect to a new x of three ones: 2 everywhere."""

    def compiled_loss(self) -> tuple[Callable[[Any, Any], Any], list[Any]]:
        """``loss(params, x)`` in the framework's compiled form, and a list that is longer each time it is compiled.

        The loss is the sum of the squares of ``x @ params["w"] + params["b"]``, one number.
        """

    def compiled(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """The function in the framework's compiled form, which is traced at the first call and perhaps again."""

    def mixing_gradient(self, x: Any, y: Any) -> Callable[[], Any]:
        """A function that runs a backward pass in which x's gradient, on its device, meets y, on another.

        The forward pass runs here, outside `xdevice.strict`, and must succeed.
        """

    def symbolic(self, ask: Callable[[Any], object]) -> None:
        """Call ``ask`` with a symbolic tensor, which has no placement yet."""


@cache
def words_in(folder: Path, backend: str) -> ModuleType:
    """The functions of one framework, from the file of its name in a folder."""
    _ = choosing.backend(backend).framework  # imported safely, whatever else is in the process
    spec = spec_from_file_location(f"native_{backend}", folder / f"{backend}.py")
    if spec is None or spec.loader is None:
        raise ImportError(f"{folder / backend}.py cannot be imported")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
