"""New tensors: NumPy makes the numbers, except random ones, and tinygrad copies them to its device."""

import numpy as np
from tinygrad import Tensor, dtypes
from tinygrad.dtype import _from_np_dtype, _to_np_dtype

from xdevice_tinygrad import hardware

_NAMES = (
    "bool",
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    "float16",
    "float32",
    "float64",
)


def dtype(name):
    return getattr(dtypes, name) if name in _NAMES else None


def tensor(data, dtype, device):
    if isinstance(data, Tensor):
        data = data.numpy()
    numbers = np.array(data, dtype and _to_np_dtype(dtype))
    if not isinstance(data, (np.ndarray, np.generic)) and dtype is None:
        numbers = numbers.astype(
            {"f": "float32", "i": "int32"}.get(numbers.dtype.kind, numbers.dtype),
            casting="same_kind",
        )
    if numbers.dtype.name not in _NAMES:
        raise TypeError(f"tinygrad has no {numbers.dtype}")
    return _on(numbers, device)


def empty(shape, dtype, device):
    return zeros(shape, dtype, device)


def zeros(shape, dtype, device):
    return full(shape, 0.0, dtype, device)


def ones(shape, dtype, device):
    return full(shape, 1.0, dtype, device)


def full(shape, value, dtype, device):
    dtype = dtype or _default(value)
    return _on(np.full(shape, value, _to_np_dtype(dtype)), device)


def arange(start, stop, step, dtype, device):
    dtype = dtype or _default(start + stop + step)
    return _on(np.arange(start, stop, step, _to_np_dtype(dtype)), device)


def rand(shape, dtype, device):
    return _random(Tensor.rand, shape, dtype, device)


def randn(shape, dtype, device):
    return _random(Tensor.randn, shape, dtype, device)


def seed(n):
    Tensor.manual_seed(n)


def _default(value):
    if isinstance(value, bool):
        return dtypes.bool
    return dtypes.default_int if isinstance(value, int) else dtypes.default_float


def _on(numbers, device):
    shape = numbers.shape
    # of shape () it would be a constant, which has no device
    numbers = np.ascontiguousarray(numbers, numbers.dtype.newbyteorder("=")).reshape(shape or (1,))
    name = None if device is None else hardware.native(device)
    return (
        Tensor(numbers, device=name, dtype=_from_np_dtype(numbers.dtype)).realize().reshape(shape)
    )


def _random(make, shape, dtype, device):
    dtype = dtype or dtypes.default_float
    if not dtypes.is_float(dtype):
        raise TypeError(f"random numbers are floats, not {dtype}")
    made = make(
        *shape, dtype=dtypes.float32, device=None if device is None else hardware.native(device)
    ).realize()
    if dtype is dtypes.float32:
        return made
    numbers = made.numpy().astype(
        _to_np_dtype(dtype)
    )  # tinygrad 0.14 on WEBGPU makes NaN of random halves
    # a narrower float may round to 1, which is not in [0, 1)
    return _on(
        numbers
        if make is Tensor.randn
        else np.minimum(numbers, np.nextafter(numbers.dtype.type(1), 0)),
        device,
    )
