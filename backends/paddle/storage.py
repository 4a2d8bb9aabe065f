"""Raw bits of tensors whose dtype NumPy lacks: PaddlePaddle returns NumPy arrays of integers."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
import paddle

from xdevice.backends.paddle import creation, placement
from xdevice.contract import NativeDtype, Tensor
from xdevice.device import Device

Array: TypeAlias = np.ndarray[Any, Any]

_STRIDES = "FLAGS_use_stride_kernel"


def to_bits(tensor: Tensor) -> Array:
    array: Array = placement.dense(tensor).numpy()
    contiguous = np.ascontiguousarray(array)  # the array of a view has the view's strides
    return contiguous.reshape(-1).view(np.uint8)


def from_bits(bits: Array, shape: tuple[int, ...], dtype: NativeDtype, device: Device) -> Tensor:
    if not bits.size:
        return creation.empty(shape, dtype, device)
    width = "int16" if "16" in str(dtype) else "int8"
    array = bits.view(width).reshape(shape)
    integers = creation.tensor(array, getattr(paddle, width), Device("cpu", 0))
    with views():
        tensor = paddle.view(integers, dtype).clone()
    if placement.device_of(tensor) is device:
        return tensor
    return placement.move(tensor, device, False)


@contextmanager
def views() -> Generator[None]:
    """A block in which CPU tensors can be viewed as another dtype.

    Such views need kernels with strides, which virtual GPUs turn off.
    """
    previous = paddle.get_flags([_STRIDES])
    paddle.set_flags({_STRIDES: True})
    try:
        yield
    finally:
        paddle.set_flags(previous)
