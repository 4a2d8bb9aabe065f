"""New arrays of array-api-strict."""

from collections.abc import Callable
from typing import Any, TypeAlias

import array_api_strict as xp
import numpy as np
import numpy.typing as npt

from xdevice.backends.array_api_strict.exchange import to_numpy
from xdevice.backends.array_api_strict.hardware import native
from xdevice.contract import NativeDevice, NativeDtype, Tensor
from xdevice.device import Device

Number: TypeAlias = Any  # of Python, of NumPy, or an array with one number
Sample: TypeAlias = Callable[[tuple[int, ...]], npt.NDArray[Any]]

_DTYPES = {name: value for name, value in vars(xp).items() if type(value) is type(xp.bool)}
_generator = np.random.default_rng()  # the standard has no random numbers


def dtype(name: str) -> NativeDtype | None:
    return _DTYPES.get(name)


def tensor(data: Any, dtype: NativeDtype, device: Device | None) -> Tensor:
    return xp.asarray(data, dtype=dtype, device=_native(device), copy=True)


def empty(shape: tuple[int, ...], dtype: NativeDtype, device: Device | None) -> Tensor:
    return xp.empty(shape, dtype=dtype, device=_native(device))


def zeros(shape: tuple[int, ...], dtype: NativeDtype, device: Device | None) -> Tensor:
    return xp.zeros(shape, dtype=dtype, device=_native(device))


def ones(shape: tuple[int, ...], dtype: NativeDtype, device: Device | None) -> Tensor:
    return xp.ones(shape, dtype=dtype, device=_native(device))


def full(
    shape: tuple[int, ...], value: Number, dtype: NativeDtype, device: Device | None
) -> Tensor:
    return xp.full(shape, _python_number(value), dtype=dtype, device=_native(device))


def arange(
    start: Number, stop: Number, step: Number, dtype: NativeDtype, device: Device | None
) -> Tensor:
    first, end, distance = map(_python_number, (start, stop, step))
    return xp.arange(first, end, distance, dtype=dtype, device=_native(device))


def rand(shape: tuple[int, ...], dtype: NativeDtype, device: Device | None) -> Tensor:
    numbers = _random(_generator.random, shape, dtype, device)
    # a narrower float may round to 1, which is not in [0, 1)
    number = numbers.dtype.type
    below_one = np.nextafter(number(1), number(0))
    return xp.asarray(np.minimum(numbers, below_one), device=_native(device))


def randn(shape: tuple[int, ...], dtype: NativeDtype, device: Device | None) -> Tensor:
    numbers = _random(_generator.standard_normal, shape, dtype, device)
    return xp.asarray(numbers, device=_native(device))


def seed(n: int) -> None:
    global _generator
    _generator = np.random.default_rng(n)


def _random(
    sample: Sample, shape: tuple[int, ...], dtype: NativeDtype, device: Device | None
) -> npt.NDArray[Any]:
    """Random numbers of the dtype, or of the device's default one."""
    like = empty((0,), dtype, device)
    if not xp.isdtype(like.dtype, "real floating"):
        raise TypeError(f"random numbers are floats, not {like.dtype}")
    return np.asarray(sample(shape), to_numpy(like).dtype)


def _native(device: Device | None) -> NativeDevice | None:
    return None if device is None else native(device)


def _python_number(value: Number) -> Any:
    """The number as one of Python's: array-api-strict takes no others."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (int, float, complex)):
        return value
    return to_numpy(value).item()
