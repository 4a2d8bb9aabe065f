"""PaddlePaddle tensors as NumPy arrays, and memory shared with other frameworks."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import numpy as np
import paddle

from xdevice.backends.paddle import creation
from xdevice.backends.paddle.placement import dense, device_of, dtype_name, move
from xdevice.device import Device
from xdevice.errors import NotSupportedError

_STRIDES = "FLAGS_use_stride_kernel"


def to_numpy(tensor: Any) -> np.ndarray[Any, Any]:
    device_of(tensor)  # raises if there are no values
    array: np.ndarray[Any, Any] = dense(tensor).numpy()  # a copy
    dtype = dtype_name(tensor)
    if dtype not in creation.FOREIGN:
        return array
    try:
        import ml_dtypes
    except ModuleNotFoundError as error:
        hint = "convert it first with .astype('float32'), or pip install ml_dtypes"
        raise NotSupportedError(f"NumPy has no {dtype}; {hint}") from error
    return array.view(getattr(ml_dtypes, dtype))


class _Exporter:
    """A tensor's memory; Paddle's own ``__dlpack_device__`` is ``(enum, None)``, which JAX does not take."""

    def __init__(self, tensor: Any) -> None:
        self._tensor, self.shape = tensor, tuple(tensor.shape)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0  # the CPU

    def __dlpack__(self, **asked: Any) -> Any:
        return self._tensor.__dlpack__(**asked)


def export(tensor: Any) -> tuple[Any, bool] | None:
    device_of(tensor)  # raises if there are no values
    return (_Exporter(tensor.detach()), True) if tensor.is_dense() and tensor.size else None


def adopt(exporter: Any, writable: bool) -> Any:
    return paddle.utils.dlpack.from_dlpack(exporter.__dlpack__()) if writable else None


def to_bits(tensor: Any) -> np.ndarray[Any, Any]:
    array: np.ndarray[Any, Any] = dense(tensor).numpy()
    return array.reshape(-1).view(np.uint8)


def from_bits(bits: np.ndarray[Any, Any], shape: tuple[int, ...], dtype: Any, device: Device) -> Any:
    if not bits.size:
        return creation.empty(shape, dtype, device)
    width = "int16" if "16" in str(dtype) else "int8"
    integers = creation.tensor(bits.view(width).reshape(shape), getattr(paddle, width), Device("cpu", 0))
    with views():
        made = paddle.view(integers, dtype).clone()
    return made if device_of(made) is device else move(made, device, False)


@contextmanager
def views() -> Generator[None]:
    """Allow views as another dtype, which need the strides that virtual GPUs turn off; on the CPU they work."""
    before = paddle.get_flags([_STRIDES])
    paddle.set_flags({_STRIDES: True})
    try:
        yield
    finally:
        paddle.set_flags(before)
