"""What every part of the suite shares: the framework tested, its own calls, and the marks of promises."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import pytest

from xdevice import Device, XDeviceError, devices, gpu, to_numpy
from xdevice.framework import choosing
from xdevice.framework.adapters import Backend
from xdevice.hardware.devices import has_cpu
from xdevice.testing import words_in

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
"""The factories whose numbers are told beforehand, for `needs`."""

T = TypeVar("T")
E = TypeVar("E", bound=Exception)


def needs(*names: str, gpus: int = 0) -> Callable[[T], T]:
    """Collect a promise, or each of a class, only for frameworks that have what it needs.

    That is a word of ``Native`` (``model``), a function of a capability (``creation.rand``), or ``cpu``: devices of
    that kind. In braces, the value of the test's parameter of that name (``creation.{name}``). A promise with the CPU
    as a parameter needs it without saying so. Where there are not so many GPUs, real or virtual, it is skipped.
    """

    def keep(kept: T) -> T:
        members: Any = vars(kept).items() if isinstance(kept, type) else [("test_", kept)]
        for promise in [member for name, member in members if name.startswith("test_")]:
            promise.xdevice_needs = (*getattr(promise, "xdevice_needs", ()), *names)
            if gpus:  # a mark on the class would hold for all of the suite
                pytest.mark.multi_device(gpus)(promise)
        return kept

    return keep


def raised(error: type[E], says: str | None = None) -> Callable[..., E]:
    """A function that calls what it is given, and returns the error raised, which must be of the type and the words."""

    def check(call: Callable[..., object], /, *args: Any, **options: Any) -> E:
        __tracebackhide__ = True
        with pytest.raises(error, match=says) as caught:
            call(*args, **options)
        return caught.value

    return check


def refusals(
    error: type[Exception], calls: Mapping[str, Callable[[], object]]
) -> Callable[..., None]:
    """A promise that each call raises the error, in the words that it stands under: a regular expression."""

    @pytest.mark.parametrize("says", calls)
    def promise(self: Promises, backend: str, says: str) -> None:
        raised(error, says)(calls[says])

    return promise


class Promises:
    """A part of the contract: each test is a promise, made for each framework asked for.

    Set ``backend`` to make them for that framework alone, and ``native`` to its own words: a module, any object,
    or a `pathlib.Path` of a folder that has a file NAME.py for each framework.

    A promise that cannot be kept, or that would end the process, is named in ``waived`` with the reason, which the
    run's summary prints.
    """

    backend: ClassVar[str | None] = None
    waived: ClassVar[Mapping[str, str]] = {}
    native: ClassVar[Any] = None

    @classmethod
    def words(cls, backend: str) -> Any:
        """The framework's own functions, a `xdevice.testing.Native`."""
        return words_in(cls.native, str(backend)) if isinstance(cls.native, Path) else cls.native

    @classmethod
    def xdevice_promised(
        cls, backend: str, promise: Callable[..., None], params: dict[str, Any]
    ) -> bool:
        """Whether the promise is made for that framework: the plugin asks."""
        needed = [need.format_map(params) for need in getattr(promise, "xdevice_needs", ())]
        given = [
            each
            for value in params.values()
            for each in (value if isinstance(value, tuple) else [value])
        ]
        if any(isinstance(each, Device) and each.kind == "cpu" for each in given):
            needed.append("cpu")
        return all(cls.has(backend, need) for need in needed)

    @classmethod
    def has(cls, backend: str, need: str) -> bool:
        """Whether the framework's words, or its adapter's capabilities, have what a promise needs."""
        capability, _, function = need.rpartition(".")
        try:
            if capability:
                return function in vars(getattr(choosing.backend(backend), capability))
            return (
                has_cpu(choosing.backend(backend))
                if need == "cpu"
                else hasattr(cls.words(backend), need)
            )
        except XDeviceError:
            return True  # the promise fails with the error

    # named differently from the attributes that a subclass sets, which would hide them

    @pytest.fixture(name="backend")
    def chosen(self, xdevice_backend: Backend) -> Backend:
        """The framework, chosen, whatever fixture of that name the project has."""
        return xdevice_backend

    @pytest.fixture(name="native")
    def own_words(self, xdevice_backend: Backend) -> Any:
        """The framework's own functions."""
        words = self.words(xdevice_backend)
        if not hasattr(words, "ones"):
            name = type(self).__name__
            raise pytest.UsageError(
                f"{name}.native is {words!r}; set it to the functions of xdevice.testing.Native"
            )
        return words

    @pytest.fixture(name="x")
    def ones(self, native: Any) -> Any:
        """A (2, 3) tensor of ones on the device `home`, by the framework's own factory."""
        return at_home(native.ones)

    @pytest.fixture(name="model")
    def model_at_home(self, native: Any) -> Any:
        """The framework's own model on the device `home`."""
        return at_home(native.model)

    @pytest.fixture(
        params=[
            "home",
            *(pytest.param(gpu, marks=on_several, id=str(gpu)) for gpu in (FIRST, SECOND)),
        ]
    )
    def place(self, xdevice_backend: Backend, request: pytest.FixtureRequest) -> Device:
        """The device `home`, then each of two GPUs where there are two."""
        return home() if request.param == "home" else request.param

    @pytest.fixture(params=SPELLINGS)
    def spelling(self, xdevice_backend: Backend, request: pytest.FixtureRequest) -> str:
        """The device `home`, written in each of the `SPELLINGS`."""
        return str(request.param).format(kind=home().kind, KIND=home().kind.upper())


def home() -> Device:
    """The chosen framework's first device: the CPU, or GPU 0 where the framework has GPUs alone."""
    return devices()[0]


def at_home(make: Callable[[], T]) -> T:
    """Call ``make`` in the scope of `home`: the framework's default may be another device."""
    with home():
        return make()


def values(x: Any) -> Any:
    """The numbers of a tensor, or of each tensor in dicts, lists and tuples, which become lists."""
    if isinstance(x, dict):
        return {key: values(value) for key, value in x.items()}
    return [values(each) for each in x] if isinstance(x, (list, tuple)) else to_numpy(x).tolist()


def number(x: Any) -> Any:
    """The number in a tensor of one, of any shape."""
    return to_numpy(x).item()


def same_values(a: Any, b: Any) -> bool:
    """Whether two tensors, on any devices, are equal to the last bit."""
    return bool(np.array_equal(to_numpy(a), to_numpy(b)))
