"""New CuPy arrays."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import cupy
import numpy as np

from xdevice.backends.cupy.hardware import count, native
from xdevice.device import Device

_NUMBERS = "biufc"  # numeric kinds of dtype
_DTYPES = "?bBhHiIlLqQefdFD"  # NumPy's characters for the numbers that CuPy has kernels for: no long doubles


def dtype(name: str) -> Any:
    try:
        found = np.dtype(name)
    except TypeError:
        return None
    return found if found.char in _DTYPES and found.name == name else None  # not "f4", nor "d"


def tensor(data: Any, dtype: Any, device: Device | None) -> Any:
    with _on(device):
        array = cupy.array(data, dtype=dtype, blocking=True)  # else NumPy's memory is still read when this returns
    if array.dtype.kind not in _NUMBERS:
        raise TypeError(f"{array.dtype} is not a numeric dtype")
    return array


def _of_shape(make: Callable[..., Any]) -> Callable[..., Any]:
    def made(shape: tuple[int, ...], dtype: Any, device: Device | None) -> Any:
        with _on(device):
            return make(shape, _float(dtype))

    return made


empty, zeros, ones = map(_of_shape, (cupy.empty, cupy.zeros, cupy.ones))


def full(shape: tuple[int, ...], value: Any, dtype: Any, device: Device | None) -> Any:
    with _on(device):
        return cupy.full(shape, value, dtype)


def arange(start: Any, stop: Any, step: Any, dtype: Any, device: Device | None) -> Any:
    with _on(device):
        return cupy.arange(start, stop, step, dtype=dtype)


def rand(shape: tuple[int, ...], dtype: Any, device: Device | None) -> Any:
    wanted = _checked(dtype)
    # a narrower float may round to 1, which is not in [0, 1)
    largest = np.nextafter(wanted.type(1), wanted.type(0))
    with _on(device):
        if 0 in shape:  # cuRAND is asked for no numbers
            return cupy.empty(shape, wanted)
        return cupy.minimum(cupy.random.random_sample(shape).astype(wanted, copy=False), largest)


def randn(shape: tuple[int, ...], dtype: Any, device: Device | None) -> Any:
    wanted = _checked(dtype)
    with _on(device):
        if 0 in shape:
            return cupy.empty(shape, wanted)
        return cupy.random.standard_normal(shape).astype(wanted, copy=False)


def seed(n: int) -> None:
    for i in range(count("gpu")):  # a generator for each
        with cupy.cuda.Device(i):
            cupy.random.seed(n)


def _on(device: Device | None) -> Any:
    return nullcontext() if device is None else native(device)


def _float(dtype: Any) -> Any:
    return np.dtype(float) if dtype is None else dtype


def _checked(dtype: Any) -> Any:
    wanted = np.dtype(_float(dtype))
    if wanted.kind != "f":
        raise TypeError(f"random numbers are floats, not {wanted}")
    return wanted
