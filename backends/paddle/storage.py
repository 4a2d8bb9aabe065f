"""Raw bits of tensors whose dtype NumPy lacks; PaddlePaddle gives them as NumPy arrays of integers."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import numpy as np
import paddle

from xdevice.backends.paddle import creation, placement
from xdevice.device import Device

_STRIDES = "FLAGS_use_stride_kernel"


def to_bits(tensor: Any) -> np.ndarray[Any, Any]:
    array: np.ndarray[Any, Any] = placement.dense(tensor).numpy()
    return (
        np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    )  # a view of PaddlePaddle's keeps its strides


def from_bits(
    bits: np.ndarray[Any, Any], shape: tuple[int, ...], dtype: Any, device: Device
) -> Any:
    if not bits.size:
        return creation.empty(shape, dtype, device)
    width = "int16" if "16" in str(dtype) else "int8"
    integers = creation.tensor(
        bits.view(width).reshape(shape), getattr(paddle, width), Device("cpu", 0)
    )
    with views():
        made = paddle.view(integers, dtype).clone()
    return made if placement.device_of(made) is device else placement.move(made, device, False)


@contextmanager
def views() -> Generator[None]:
    """Allow views as another dtype, which need the strides that virtual GPUs turn off; on the CPU they work."""
    before = paddle.get_flags([_STRIDES])
    paddle.set_flags({_STRIDES: True})
    try:
        yield
    finally:
        paddle.set_flags(before)
