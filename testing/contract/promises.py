"""What all parts of the suite share: fixtures, marks and checks."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeAlias, TypeVar

import numpy as np
import pytest

from xdevice import Device, XDeviceError, devices, gpu, to_numpy
from xdevice.framework import choosing
from xdevice.framework.adapters import Backend
from xdevice.hardware.devices import has_cpu
from xdevice.testing import Model, Native, Tensor, words_in

Tree: TypeAlias = Any
"""Nested containers with tensors as leaves."""

FIRST, SECOND = gpu(0), gpu(1)
on_several = pytest.mark.multi_device(2)

SPELLINGS = (
    "{kind}",
    "{kind}:0",
    "{KIND}:0",
    "/{KIND}:0",
    "/device:{KIND}:0",
    "{kind}(0)",
    "Place({kind})",
)
"""Ways to write a device."""

FIXED = ("creation.arange", "creation.full", "creation.ones", "creation.tensor", "creation.zeros")
"""The factories whose numbers are known in advance, for `needs`."""

T = TypeVar("T")
E = TypeVar("E", bound=Exception)


def needs(*names: str, gpus: int = 0) -> Callable[[T], T]:
    """Collect a promise only for frameworks that have what it needs.

    On a class, it marks each promise of the class.

    Parameters
    ----------
    names
        A function of ``Native`` (``model``), a function of a capability
        (``creation.rand``), a dtype (``dtype.float16``), or ``cpu``: devices of
        that kind. A name in braces
        is a parameter of the test and stands for its value
        (``creation.{name}``). A promise whose parameter is a CPU device needs
        ``cpu`` without saying so.
    gpus
        The number of GPUs, real or virtual, that the promise needs. With fewer
        it is skipped.
    """

    def mark(promises: T) -> T:
        for promise in promises_in(promises):
            promise.xdevice_needs = (*getattr(promise, "xdevice_needs", ()), *names)
            if gpus:  # not as a mark on the class: every subclass would inherit it
                pytest.mark.multi_device(gpus)(promise)
        return promises

    return mark


def promises_in(promises: Any) -> list[Any]:
    """The test functions of a class, or the one test function."""
    if not isinstance(promises, type):
        return [promises]
    return [member for name, member in vars(promises).items() if name.startswith("test_")]


def raised(error_type: type[E], message: str | None = None) -> Callable[..., E]:
    """A function that returns the error which a call must raise.

    It calls its first argument with the others.

    ``message`` is a regular expression that the error's message must match.
    """

    def check(call: Callable[..., object], /, *args: Any, **options: Any) -> E:
        __tracebackhide__ = True
        with pytest.raises(error_type, match=message) as caught:
            call(*args, **options)
        return caught.value

    return check


def refusals(
    error_type: type[Exception], calls: Mapping[str, Callable[[], object]]
) -> Callable[..., None]:
    """A promise that each call raises the error with its message.

    The keys are regular expressions that the messages must match.
    """

    @pytest.mark.parametrize("message", calls)
    def promise(self: Promises, backend: str, message: str) -> None:
        raised(error_type, message)(calls[message])

    return promise


class Promises:
    """A part of the contract: each test is a promise of every framework.

    Attributes
    ----------
    backend
        The framework for which alone the promises are checked.
    native
        The framework's own calls: a module, any object, or a `pathlib.Path` of
        a folder that has a file NAME.py for each framework.
    waived
        The promises that the framework cannot keep, or that would end the
        process, each with the reason. The summary of the run prints them.
    """

    backend: ClassVar[str | None] = None
    waived: ClassVar[Mapping[str, str]] = {}
    native: ClassVar[Any] = None

    @classmethod
    def words(cls, backend: str) -> Any:
        """The framework's own functions, a `xdevice.testing.Native`."""
        if isinstance(cls.native, Path):
            return words_in(cls.native, str(backend))
        return cls.native

    @classmethod
    def xdevice_promised(
        cls, backend: str, promise: Callable[..., None], params: dict[str, Any]
    ) -> bool:
        """Whether the promise applies; the plugin calls this."""
        names = [name.format_map(params) for name in getattr(promise, "xdevice_needs", ())]
        if any(mentions_cpu(value) for value in params.values()):
            names.append("cpu")
        return all(cls.has(backend, name) for name in names)

    @classmethod
    def has(cls, backend: str, name: str) -> bool:
        """Whether the framework has what `needs` names.

        It is one of its own functions, or a function of a capability.
        """
        capability, _, function = name.rpartition(".")
        try:
            if capability == "dtype":
                return choosing.backend(backend).creation.dtype(function) is not None
            if capability:
                return function in vars(getattr(choosing.backend(backend), capability))
            if name == "cpu":
                return has_cpu(choosing.backend(backend))
            return hasattr(cls.words(backend), name)
        except XDeviceError:
            return True  # the promise is collected, and fails with the error

    # The functions below are not named like their fixtures: attributes of
    # subclasses would hide them.

    @pytest.fixture(name="backend")
    def chosen_backend(self, xdevice_backend: Backend) -> Backend:
        """The framework, chosen while the test runs.

        A project's own fixture of that name does not replace it.
        """
        return xdevice_backend

    @pytest.fixture(name="native")
    def native_functions(self, xdevice_backend: Backend) -> Native:
        """The framework's own functions."""
        functions: Native = self.words(xdevice_backend)
        if not hasattr(functions, "ones"):
            raise pytest.UsageError(
                f"{type(self).__name__}.native is {functions!r}; "
                "set it to the functions of xdevice.testing.Native"
            )
        return functions

    @pytest.fixture(name="x")
    def ones_at_home(self, native: Native) -> Tensor:
        """A (2, 3) tensor of ones on `home`, made by the framework itself."""
        return at_home(native.ones)

    @pytest.fixture(name="model")
    def model_at_home(self, native: Native) -> Model:
        """The framework's own model on the device `home`."""
        return at_home(native.model)

    @pytest.fixture(
        params=[
            "home",
            pytest.param(FIRST, marks=on_several, id=str(FIRST)),
            pytest.param(SECOND, marks=on_several, id=str(SECOND)),
        ]
    )
    def place(self, xdevice_backend: Backend, request: pytest.FixtureRequest) -> Device:
        """The device `home`, then each of two GPUs where there are two."""
        return home() if request.param == "home" else request.param

    @pytest.fixture(params=SPELLINGS)
    def spelling(self, xdevice_backend: Backend, request: pytest.FixtureRequest) -> str:
        """The device `home`, written in each of the `SPELLINGS`."""
        kind = home().kind
        return str(request.param).format(kind=kind, KIND=kind.upper())


def mentions_cpu(parameter: Any) -> bool:
    """Whether a parameter is a CPU device, or a tuple that contains one."""
    values = parameter if isinstance(parameter, tuple) else [parameter]
    return any(isinstance(value, Device) and value.kind == "cpu" for value in values)


def home() -> Device:
    """The chosen framework's first device.

    It is the CPU, or GPU 0 if the framework has only GPUs.
    """
    return devices()[0]


def at_home(create: Callable[[], T]) -> T:
    """Call ``create`` in the scope of `home`.

    The framework's default may be another device.
    """
    with home():
        return create()


def values(x: Tree) -> Any:
    """The numbers of a tensor as a list.

    Dicts, lists and tuples keep their shape; tuples become lists.
    """
    if isinstance(x, dict):
        return {key: values(value) for key, value in x.items()}
    if isinstance(x, (list, tuple)):
        return [values(item) for item in x]
    return to_numpy(x).tolist()


def number(x: Tensor) -> Any:
    """The number in a tensor that has one, of any shape."""
    return to_numpy(x).item()


def same_values(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors, on any devices, are equal to the last bit."""
    return bool(np.array_equal(to_numpy(a), to_numpy(b)))
