"""Copies of NumPy arrays, and memory shared with other frameworks; ml_dtypes and others add dtypes to NumPy."""

from typing import Any

import numpy as np

from xdevice.device import Device
from xdevice.errors import NotSupportedError

Array = np.ndarray[Any, Any]


def to_numpy(tensor: Any) -> Array:
    if np.ma.is_masked(tensor):
        raise NotSupportedError("the mask of a masked array would be lost; fill it first with x.filled()")
    return np.array(tensor)


def export(tensor: Any) -> tuple[Any, bool] | None:
    """Not with negative strides: torch would abort the process, and Paddle read other memory."""
    plain = type(tensor) is np.ndarray and tensor.size and tensor.dtype.isnative and tensor.dtype.kind in "biufc"
    if not plain or min(tensor.strides, default=1) <= 0:
        return None
    return tensor, tensor.flags.writeable


def adopt(exporter: Any, writable: bool) -> Any:
    made = np.from_dlpack(exporter)
    return made if made.flags.writeable or not writable else None  # read-only where the source never changes


def to_bits(tensor: Any) -> Array:
    return np.array(tensor).reshape(-1).view(np.uint8)


def from_bits(bits: Array, shape: tuple[int, ...], dtype: Any, device: Device) -> Array:
    return np.array(bits.view(np.dtype(dtype)).reshape(shape))
