"""CuPy's functions under the array API standard's names, by array-api-compat.

Each computes on the device of its arrays; CuPy's own functions compute on the current device.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any

import array_api_compat.cupy as xp
import array_api_compat.cupy.fft as xp_fft
import array_api_compat.cupy.linalg as xp_linalg
import cupy

from xdevice.contract import Extension
from xdevice.kit.standard import elementwise

linalg = Extension(lambda: _placed(vars(xp_linalg)), cupy.linalg)
fft = Extension(lambda: _placed(vars(xp_fft)), cupy.fft)


def namespace() -> Mapping[str, Any]:
    return _placed(vars(xp))


def module() -> Any:
    return cupy


def _placed(functions: Mapping[str, Any]) -> dict[str, Any]:
    """The contents of a module; its functions compute on the device of their first array."""
    contents = dict(functions)
    for name, value in functions.items():
        if callable(value) and not isinstance(value, type):
            contents[name] = _beside_arrays(_with_signature(value))
    return contents


def _beside_arrays(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        first = _first_array((*args, *kwargs.values()))
        if first is None:
            return function(*args, **kwargs)
        with first.device:
            return function(*args, **kwargs)

    return call


def _with_signature(function: Any) -> Any:
    """The function with the standard's signature: a ufunc of CuPy 14.2 has none."""
    if not isinstance(function, cupy.ufunc):
        return function
    return elementwise(function, function.name.removeprefix("cupy_"))


def _first_array(values: Iterable[Any]) -> Any:
    for value in values:
        array = _first_array(value) if isinstance(value, (list, tuple)) else value
        if isinstance(array, cupy.ndarray):
            return array
    return None
