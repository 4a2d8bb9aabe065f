"""Operations on arrays of several devices, which array-api-strict refuses with an error of its own.

While a strict block is open, its public functions and the operators of its arrays turn that
``ValueError`` into a `MixedDeviceError`. A function that a program imported by name before the
block raises the ``ValueError`` still.
"""

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from types import FunctionType
from typing import Any, TypeAlias

import array_api_strict as xp

from xdevice.backends.array_api_strict.placement import ARRAY, device_of
from xdevice.backends.kit.private_names import replaced
from xdevice.device import Device
from xdevice.errors import mixed

Function: TypeAlias = Callable[..., Any]

_BINARY = [
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "pow",
    "matmul",
    "and",
    "or",
    "xor",
    "lshift",
    "rshift",
]
_OTHERS = ["eq", "ne", "lt", "le", "gt", "ge", "getitem", "setitem"]
_OPERATORS = [
    f"__{prefix}{name}__"
    for prefix, names in {"": _BINARY + _OTHERS, "r": _BINARY, "i": _BINARY}.items()
    for name in names
]


@contextmanager
def forbid() -> Generator[None]:
    with ExitStack() as stack:
        for owner, name in _operations():
            stack.enter_context(replaced(owner, name, _translating))
        yield


def _operations() -> Iterator[tuple[object, str]]:
    """Each public function and operator: the module or class that has it, and its name."""
    for name in _OPERATORS:
        if name in vars(ARRAY):
            yield ARRAY, name
    # linalg and fft are missing while array-api-strict's flags disable them
    extensions = [getattr(xp, name) for name in ("linalg", "fft") if hasattr(xp, name)]
    for module in (xp, *extensions):
        for name, value in vars(module).items():
            if type(value) is FunctionType and not name.startswith("_"):
                yield module, name


def _translating(function: Function) -> Function:
    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> object:
        try:
            return function(*args, **kwargs)
        except ValueError as error:
            devices = set(_devices_of([*args, *kwargs.values()]))
            if len(devices) < 2:
                raise
            raise mixed(function.__name__.strip("_"), devices) from error

    return call


def _devices_of(arguments: Iterable[object]) -> Iterator[Device]:
    for argument in arguments:
        if isinstance(argument, (list, tuple)):
            yield from _devices_of(argument)
        elif isinstance(argument, ARRAY):
            yield device_of(argument)
