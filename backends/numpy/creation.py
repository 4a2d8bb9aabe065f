"""New NumPy arrays."""

from collections.abc import Callable
from typing import Any

import numpy as np

from xdevice.device import Device

Array = np.ndarray[Any, Any]
_NUMBERS = "biufc"  # numeric kinds of dtype: neither text nor objects


def dtype(name: str) -> Any:
    try:
        found = np.dtype(name)
    except TypeError:
        return None
    # not "f4", nor "d"; nor float8_e5m2, which is of the kind "f" where a package has registered it
    return found if found.kind in _NUMBERS and found.isbuiltin == 1 and found.name == name else None


def tensor(data: Any, dtype: Any, device: Device | None) -> Array:
    try:
        array: Array = np.array(data, dtype=dtype)
    except Warning as error:  # NumPy 1.23 warns of a ragged list, and a warning may be an error
        raise ValueError(str(error)) from error
    if array.dtype.kind not in _NUMBERS:
        raise TypeError(f"{array.dtype} is not a numeric dtype")
    return array


def _made_by(make: Any) -> Callable[..., Array]:
    return lambda *arguments: make(*arguments[:-1])  # without the device, which is always the CPU


_makers: tuple[Any, ...] = np.empty, np.zeros, np.ones, np.full, np.arange
empty, zeros, ones, full, arange = map(_made_by, _makers)


def rand(shape: tuple[int, ...], dtype: Any, device: Device | None) -> Array:
    numbers = _floats(np.random.random_sample(shape), dtype)
    # a narrower float may round to 1, which is not in [0, 1)
    return np.asarray(
        np.minimum(numbers, np.nextafter(numbers.dtype.type(1), numbers.dtype.type(0)))
    )


def randn(shape: tuple[int, ...], dtype: Any, device: Device | None) -> Array:
    return _floats(np.random.standard_normal(shape), dtype)


def seed(n: int) -> None:
    np.random.seed(n)


def _floats(numbers: Any, dtype: Any) -> Array:
    array: Array = np.asarray(numbers, dtype)  # NumPy returns a float for shape ()
    if array.dtype.kind != "f":
        raise TypeError(f"random numbers are floats, not {array.dtype}")
    return array
