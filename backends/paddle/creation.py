"""New PaddlePaddle tensors."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import paddle

from xdevice.backends.paddle.exchange import FOREIGN
from xdevice.backends.paddle.hardware import native, scope
from xdevice.backends.paddle.placement import dense, device_of, move, name_of
from xdevice.device import Device

# Not uint16, uint32 and uint64: 3.3.1 has the names, but treats uint16 as bfloat16 and cannot fill any of them.
_WHOLE = ("bool", "uint8", "int8", "int16", "int32", "int64")
_NUMPY = (*_WHOLE, "float16", "float32", "float64", "complex64", "complex128")
_RANGED = ("int32", "int64", "float32", "float64")  # the dtypes that paddle.arange supports
_FRACTION = {
    "float16": 11,
    "bfloat16": 8,
}  # fraction bits that are exact for every number in [0, 1)

_TAKES_DEVICE = "device" in inspect.signature(paddle.ones).parameters  # since 3.3


def dtype(name: str) -> Any:
    return getattr(paddle, name, None) if name in _NUMPY + FOREIGN else None


def tensor(data: Any, dtype: Any, device: Device | None) -> Any:
    if isinstance(data, paddle.Tensor):
        source = dense(data).detach()
        return _placed(
            source.clone() if dtype in (None, data.dtype) else source.astype(dtype), device
        )
    array = np.asarray(data)
    wanted = _kept(data, array) if dtype is None else name_of(dtype)
    if (
        array.dtype.kind not in "biufc" and array.dtype.name not in FOREIGN
    ) or wanted not in _NUMPY + FOREIGN:
        raise TypeError(
            f"PaddlePaddle has no {array.dtype}; give a dtype that it has, such as 'int64'"
        )
    # in C order and native byte order, which is what Paddle reads
    array = np.asarray(array, "float32" if wanted in FOREIGN else wanted, order="C")
    made = paddle.to_tensor(array, place=None if device is None else native(device))
    return _placed(made.astype(getattr(paddle, wanted)) if wanted in FOREIGN else made, device)


def _of_shape(make: Callable[..., Any]) -> Callable[..., Any]:
    return lambda shape, dtype, device: _made(make, shape, dtype=dtype, device=device)


empty, zeros, ones = map(_of_shape, (paddle.empty, paddle.zeros, paddle.ones))


def full(shape: tuple[int, ...], value: Any, dtype: Any, device: Device | None) -> Any:
    if isinstance(value, paddle.Tensor):  # paddle.full drops its gradient
        filled = paddle.expand(
            (value if dtype is None else value.astype(dtype)).reshape([]), shape
        ).clone()
        return (
            filled if device is None or device_of(filled) is device else move(filled, device, False)
        )
    if isinstance(value, (str, bytes)):
        raise TypeError(f"{value!r} is not a number")  # Paddle treats 'a' as 0
    if dtype is None and isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        dtype = paddle.int64  # paddle.full would make a float, unlike the rest of Paddle
    return _made(paddle.full, shape, value, dtype=dtype, device=device)


def arange(start: Any, stop: Any, step: Any, dtype: Any, device: Device | None) -> Any:
    if dtype is None or name_of(dtype) in _RANGED:
        return _made(paddle.arange, start, stop, step, dtype=dtype, device=device)
    return arange(
        start, stop, step, paddle.int64 if name_of(dtype) in _WHOLE else paddle.float64, device
    ).astype(dtype)


def rand(shape: tuple[int, ...], dtype: Any, device: Device | None) -> Any:
    wanted = paddle.get_default_dtype() if dtype is None else name_of(dtype)
    bits = _FRACTION.get(wanted)
    numbers = _made(
        paddle.rand, shape, dtype=wanted if bits is None else paddle.float32, device=device
    )
    # rounding to 16 bits could turn a number just under 1 into 1, as in paddle.rand
    return numbers if bits is None else (paddle.floor(numbers * 2**bits) / 2**bits).astype(wanted)


def randn(shape: tuple[int, ...], dtype: Any, device: Device | None) -> Any:
    if dtype is None or name_of(dtype) not in _FRACTION:
        return _made(paddle.randn, shape, dtype=dtype, device=device)
    # PaddlePaddle 2.6 draws no 16-bit numbers on the CPU
    return _made(paddle.randn, shape, dtype=paddle.float32, device=device).astype(dtype)


def seed(n: int) -> None:
    paddle.seed(n)  # every device's generator


def _made(factory: Callable[..., Any], *args: Any, dtype: Any, device: Device | None) -> Any:
    try:
        if device is None:
            return factory(*args, dtype=dtype)
        if _TAKES_DEVICE:
            return factory(*args, dtype=dtype, device=native(device))
        with scope(device):
            return factory(*args, dtype=dtype)
    except RuntimeError as error:
        if "is not registered" in str(
            error
        ):  # Paddle's message for a dtype that this factory lacks
            raise TypeError(f"paddle.{factory.__name__} has no {name_of(dtype)}") from error
        raise


def _placed(made: Any, device: Device | None) -> Any:
    # to_tensor of one number with a GPU as place uses the default GPU (PaddlePaddle 3.0 and 3.3.1)
    return (
        made if device is None or device_of(made) is device else made._copy_to(native(device), True)
    )


def _kept(data: Any, array: np.ndarray[Any, Any]) -> str:
    """The dtype where none is given: NumPy's for arrays, Paddle's default for Python numbers."""
    own: str = array.dtype.name
    if array.dtype.kind not in "fc" or isinstance(data, (np.ndarray, np.generic)):
        return own
    default = str(paddle.get_default_dtype())
    return (
        default
        if array.dtype.kind == "f"
        else "complex128"
        if default == "float64"
        else "complex64"
    )
