"""New PaddlePaddle tensors."""

import inspect
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import paddle

from xdevice.backends.paddle.exchange import FOREIGN
from xdevice.backends.paddle.hardware import native, scope
from xdevice.backends.paddle.placement import dense, device_of, move, name_of
from xdevice.device import Device

Tensor: TypeAlias = Any

# Not uint16, uint32 and uint64: 3.3.1 has the names, but treats uint16 as bfloat16 and cannot fill
# any of them.
_WHOLE = ("bool", "uint8", "int8", "int16", "int32", "int64")
_NUMPY = (*_WHOLE, "float16", "float32", "float64", "complex64", "complex128")
_RANGED = ("int32", "int64", "float32", "float64")  # the dtypes that paddle.arange supports
# The number of fraction bits that are exact for every number in [0, 1)
_FRACTION_BITS = {"float16": 11, "bfloat16": 8}

_TAKES_DEVICE = "device" in inspect.signature(paddle.ones).parameters  # since 3.3


def dtype(name: str) -> Any:
    return getattr(paddle, name, None) if name in _NUMPY + FOREIGN else None


def tensor(data: Any, dtype: Any, device: Device | None) -> Tensor:
    if isinstance(data, paddle.Tensor):
        source = dense(data).detach()
        keeps_dtype = dtype in (None, data.dtype)
        return _placed(source.clone() if keeps_dtype else source.astype(dtype), device)
    array = np.asarray(data)
    dtype_name = _default_dtype(data, array) if dtype is None else name_of(dtype)
    is_number = array.dtype.kind in "biufc" or array.dtype.name in FOREIGN
    if not is_number or dtype_name not in _NUMPY + FOREIGN:
        raise TypeError(
            f"PaddlePaddle has no {array.dtype}; give a dtype that it has, such as 'int64'"
        )
    is_foreign = dtype_name in FOREIGN
    # in C order and native byte order, which is what Paddle reads
    array = np.asarray(array, "float32" if is_foreign else dtype_name, order="C")
    result = paddle.to_tensor(array, place=None if device is None else native(device))
    if is_foreign:
        result = result.astype(getattr(paddle, dtype_name))
    return _placed(result, device)


def _of_shape(make: Callable[..., Any]) -> Callable[..., Any]:
    def create(shape: tuple[int, ...], dtype: Any, device: Device | None) -> Tensor:
        if device is None or not _TAKES_DEVICE:
            return _new(make, shape, dtype=dtype, device=device)
        try:
            return make(shape, dtype=dtype, device=native(device))
        except RuntimeError as error:
            _raise_type_error(error, make, dtype)
            raise

    return create


empty, zeros, ones = map(_of_shape, (paddle.empty, paddle.zeros, paddle.ones))


def full(shape: tuple[int, ...], value: Any, dtype: Any, device: Device | None) -> Tensor:
    if isinstance(value, paddle.Tensor):  # paddle.full drops its gradient
        scalar = value if dtype is None else value.astype(dtype)
        filled = paddle.expand(scalar.reshape([]), shape).clone()
        if device is None or device_of(filled) is device:
            return filled
        return move(filled, device, False)
    if isinstance(value, (str, bytes)):
        raise TypeError(f"{value!r} is not a number")  # Paddle treats 'a' as 0
    if dtype is None and isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        dtype = paddle.int64  # paddle.full would make a float, unlike the rest of Paddle
    return _new(paddle.full, shape, value, dtype=dtype, device=device)


def arange(start: Any, stop: Any, step: Any, dtype: Any, device: Device | None) -> Tensor:
    if dtype is None or name_of(dtype) in _RANGED:
        return _new(paddle.arange, start, stop, step, dtype=dtype, device=device)
    widest = paddle.int64 if name_of(dtype) in _WHOLE else paddle.float64
    return arange(start, stop, step, widest, device).astype(dtype)


def rand(shape: tuple[int, ...], dtype: Any, device: Device | None) -> Tensor:
    dtype_name = paddle.get_default_dtype() if dtype is None else name_of(dtype)
    bits = _FRACTION_BITS.get(dtype_name)
    if bits is None:
        return _new(paddle.rand, shape, dtype=dtype_name, device=device)
    # rounding down, since a number just under 1 could be rounded to 1, as in paddle.rand
    numbers = _new(paddle.rand, shape, dtype=paddle.float32, device=device)
    return (paddle.floor(numbers * 2**bits) / 2**bits).astype(dtype_name)


def randn(shape: tuple[int, ...], dtype: Any, device: Device | None) -> Tensor:
    if dtype is None or name_of(dtype) not in _FRACTION_BITS:
        return _new(paddle.randn, shape, dtype=dtype, device=device)
    # PaddlePaddle 2.6 draws no 16-bit numbers on the CPU
    return _new(paddle.randn, shape, dtype=paddle.float32, device=device).astype(dtype)


def seed(n: int) -> None:
    paddle.seed(n)  # every device's generator


def _new(factory: Callable[..., Any], *args: Any, dtype: Any, device: Device | None) -> Tensor:
    try:
        if device is None:
            return factory(*args, dtype=dtype)
        if _TAKES_DEVICE:
            return factory(*args, dtype=dtype, device=native(device))
        with scope(device):
            return factory(*args, dtype=dtype)
    except RuntimeError as error:
        _raise_type_error(error, factory, dtype)
        raise


def _raise_type_error(error: RuntimeError, factory: Callable[..., Any], dtype: Any) -> None:
    """Raise a TypeError if the error is Paddle's for a dtype that the factory lacks."""
    if "is not registered" in str(error):
        raise TypeError(f"paddle.{factory.__name__} has no {name_of(dtype)}") from error


def _placed(tensor: Tensor, device: Device | None) -> Tensor:
    # to_tensor of one number with a GPU as place uses the default GPU (PaddlePaddle 3.0 and 3.3.1)
    if device is None or device_of(tensor) is device:
        return tensor
    return tensor._copy_to(native(device), True)


def _default_dtype(data: Any, array: np.ndarray[Any, Any]) -> str:
    """The dtype if none is requested: NumPy's for arrays, Paddle's default for Python numbers."""
    numpy_dtype: str = array.dtype.name
    if array.dtype.kind not in "fc" or isinstance(data, (np.ndarray, np.generic)):
        return numpy_dtype
    default = str(paddle.get_default_dtype())
    if array.dtype.kind == "f":
        return default
    return "complex128" if default == "float64" else "complex64"
