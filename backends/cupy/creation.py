"""New CuPy arrays."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import cupy
import numpy as np

from xdevice.backends.cupy.hardware import count, native

_NUMBERS = "biufc"  # numeric kinds of dtype
_DTYPES = "?bBhHiIlLqQefdFD"  # NumPy's characters for the numbers that CuPy has kernels for: no long doubles


def dtype(name: str) -> Any:
    try:
        found = np.dtype(name)
    except TypeError:
        return None
    return found if found.char in _DTYPES and found.name == name else None  # not "f4", nor "d"


def _placed(make: Callable[..., Any]) -> Callable[..., Any]:
    """The function, called on the device that is given last."""

    def made(*arguments: Any) -> Any:
        device = arguments[-1]
        with nullcontext() if device is None else native(device):
            return make(*arguments[:-1])

    return made


@_placed
def tensor(data: Any, dtype: Any) -> Any:
    array = cupy.array(
        data, dtype=dtype, blocking=True
    )  # else NumPy's memory is still read when this returns
    if array.dtype.kind not in _NUMBERS:
        raise TypeError(f"{array.dtype} is not a numeric dtype")
    return array


def _of_shape(make: Callable[..., Any]) -> Callable[..., Any]:
    return _placed(lambda shape, dtype: make(shape, np.dtype(float) if dtype is None else dtype))


empty, zeros, ones = map(_of_shape, (cupy.empty, cupy.zeros, cupy.ones))
full, arange = map(_placed, (cupy.full, cupy.arange))


def _random(sample: Callable[..., Any]) -> Callable[..., Any]:
    @_placed
    def drawn(shape: tuple[int, ...], dtype: Any) -> Any:
        wanted = np.dtype(float if dtype is None else dtype)
        if wanted.kind != "f":
            raise TypeError(f"random numbers are floats, not {wanted}")
        if 0 in shape:  # cuRAND is asked for no numbers
            return cupy.empty(shape, wanted)
        return sample(shape).astype(wanted, copy=False)

    return drawn


randn, _up_to_one = _random(cupy.random.standard_normal), _random(cupy.random.random_sample)


@_placed
def rand(shape: tuple[int, ...], dtype: Any) -> Any:
    numbers = _up_to_one(
        shape, dtype, None
    )  # a narrower float may round to 1, which is not in [0, 1)
    return cupy.minimum(numbers, np.nextafter(numbers.dtype.type(1), numbers.dtype.type(0)))


def seed(n: int) -> None:
    for i in range(count("gpu")):  # a generator for each
        with cupy.cuda.Device(i):
            cupy.random.seed(n)
