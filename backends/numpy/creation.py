"""New NumPy arrays."""

from collections.abc import Callable
from typing import Any

import numpy as np

from xdevice.device import Device

Array = np.ndarray[Any, Any]
_NUMBERS = "biufc"  # numeric kinds of dtype: neither text nor objects


def dtype(name: str) -> Any:
    try:
        dtype = np.dtype(name)
    except TypeError:
        return None
    # a package may register dtypes of its own with the kind "f", such as float8_e5m2
    is_numpys = dtype.isbuiltin == 1 and dtype.kind in _NUMBERS
    is_full_name = dtype.name == name  # not "f4", nor "d"
    return dtype if is_numpys and is_full_name else None


def tensor(data: Any, dtype: Any, device: Device | None) -> Array:
    try:
        array: Array = np.array(data, dtype=dtype)
    except Warning as error:  # NumPy 1.23 warns of a ragged list, and a warning may be an error
        raise ValueError(str(error)) from error
    if array.dtype.kind not in _NUMBERS:
        raise TypeError(f"{array.dtype} is not a numeric dtype")
    return array


def _without_device(factory: Any) -> Callable[..., Array]:
    """The factory of NumPy, with a device as its last argument, which it ignores: it is the CPU."""
    return lambda *arguments: factory(*arguments[:-1])


_factories: tuple[Any, ...] = np.empty, np.zeros, np.ones, np.full, np.arange
empty, zeros, ones, full, arange = map(_without_device, _factories)


def rand(shape: tuple[int, ...], dtype: Any, device: Device | None) -> Array:
    numbers = _floats(np.random.random_sample(shape), dtype)
    # a narrower float may round to 1, which is not in [0, 1)
    number = numbers.dtype.type
    below_one = np.nextafter(number(1), number(0))
    return np.asarray(np.minimum(numbers, below_one))


def randn(shape: tuple[int, ...], dtype: Any, device: Device | None) -> Array:
    return _floats(np.random.standard_normal(shape), dtype)


def seed(n: int) -> None:
    np.random.seed(n)


def _floats(numbers: Any, dtype: Any) -> Array:
    array: Array = np.asarray(numbers, dtype)  # NumPy returns a float for shape ()
    if array.dtype.kind != "f":
        raise TypeError(f"random numbers are floats, not {array.dtype}")
    return array
