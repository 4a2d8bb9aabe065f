"""CuPy's functions under the array API standard's names, by array-api-compat.

Each computes on the device of its arrays; CuPy's own functions compute on the current device.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from types import ModuleType
from typing import Any, TypeAlias

import array_api_compat.cupy as xp
import array_api_compat.cupy.fft as xp_fft
import array_api_compat.cupy.linalg as xp_linalg
import cupy

from xdevice.backends.kit.standard import elementwise
from xdevice.contract import Extension

Function: TypeAlias = Callable[..., Any]

linalg = Extension(lambda: _placed(vars(xp_linalg)), cupy.linalg)
fft = Extension(lambda: _placed(vars(xp_fft)), cupy.fft)


def namespace() -> Mapping[str, object]:
    return _placed(vars(xp))


def module() -> ModuleType:
    native_module: ModuleType = cupy
    return native_module


def _placed(module_contents: Mapping[str, object]) -> dict[str, object]:
    """The contents of a module; its functions compute on the device of their first array."""
    contents = dict(module_contents)
    for name, value in module_contents.items():
        if callable(value) and not isinstance(value, type):
            contents[name] = _beside_arrays(_with_signature(value))
    return contents


def _beside_arrays(function: Function) -> Function:
    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> object:
        first = _first_array((*args, *kwargs.values()))
        if first is None:
            return function(*args, **kwargs)
        with first.device:
            return function(*args, **kwargs)

    return call


def _with_signature(function: Function) -> Function:
    """The function with the standard's signature: a ufunc of CuPy 14.2 has none."""
    if not isinstance(function, cupy.ufunc):
        return function
    return elementwise(function, function.name.removeprefix("cupy_"))


def _first_array(values: Iterable[object]) -> cupy.ndarray | None:
    for value in values:
        if isinstance(value, cupy.ndarray):
            return value
        if isinstance(value, (list, tuple)):
            array = _first_array(value)
            if array is not None:
                return array
    return None
