"""New CuPy arrays."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import cupy
import numpy as np

from xdevice.backends.cupy.hardware import count, native

_NUMBERS = "biufc"  # numeric kinds of dtype
_DTYPES = "?bBhHiIlLqQefdFD"  # NumPy's characters of the dtypes with kernels: no long doubles


def dtype(name: str) -> Any:
    try:
        dtype = np.dtype(name)
    except TypeError:
        return None
    is_full_name = dtype.name == name  # not "f4", nor "d"
    return dtype if is_full_name and dtype.char in _DTYPES else None


def _placed(make: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with a device as its last argument, on which it is called."""

    def call(*arguments: Any) -> Any:
        device = arguments[-1]
        with nullcontext() if device is None else native(device):
            return make(*arguments[:-1])

    return call


@_placed
def tensor(data: Any, dtype: Any) -> Any:
    # without blocking, NumPy's memory may still be read when this returns
    array = cupy.array(data, dtype=dtype, blocking=True)
    if array.dtype.kind not in _NUMBERS:
        raise TypeError(f"{array.dtype} is not a numeric dtype")
    return array


def _of_shape(make: Callable[..., Any]) -> Callable[..., Any]:
    return _placed(lambda shape, dtype: make(shape, np.dtype(float) if dtype is None else dtype))


empty, zeros, ones = map(_of_shape, (cupy.empty, cupy.zeros, cupy.ones))
full, arange = map(_placed, (cupy.full, cupy.arange))


def _random(sample: Callable[..., Any]) -> Callable[..., Any]:
    @_placed
    def random_array(shape: tuple[int, ...], dtype: Any) -> Any:
        dtype = np.dtype(float if dtype is None else dtype)
        if dtype.kind != "f":
            raise TypeError(f"random numbers are floats, not {dtype}")
        if 0 in shape:  # cuRAND cannot generate zero numbers
            return cupy.empty(shape, dtype)
        return sample(shape).astype(dtype, copy=False)

    return random_array


randn = _random(cupy.random.standard_normal)
_up_to_one = _random(cupy.random.random_sample)


@_placed
def rand(shape: tuple[int, ...], dtype: Any) -> Any:
    numbers = _up_to_one(shape, dtype, None)
    # a narrower float may round to 1, which is not in [0, 1)
    number = numbers.dtype.type
    return cupy.minimum(numbers, np.nextafter(number(1), number(0)))


def seed(n: int) -> None:
    for i in range(count("gpu")):  # each GPU has a generator
        with cupy.cuda.Device(i):
            cupy.random.seed(n)
