"""CuPy arrays on the host, whose NumPy gets dtypes that it lacks from packages such as ml_dtypes."""

from typing import Any

import cupy
import numpy as np

from xdevice.backends.cupy.hardware import native
from xdevice.device import Device


def to_numpy(tensor: Any) -> np.ndarray[Any, Any]:
    with tensor.device:  # whose current stream computes it
        array: np.ndarray[Any, Any] = tensor.get()
    return array if array.flags.owndata else array.copy()  # with CUPY_ENABLE_UMP it is the array's own memory


def to_bits(tensor: Any) -> np.ndarray[Any, Any]:
    return to_numpy(tensor).reshape(-1).view(np.uint8)


def from_bits(bits: np.ndarray[Any, Any], shape: tuple[int, ...], dtype: Any, device: Device) -> Any:
    with native(device):
        return cupy.array(bits.view(np.dtype(dtype)).reshape(shape), blocking=True)
