"""Raw bits of arrays; dtypes that NumPy lacks come from packages such as ml_dtypes."""

from typing import Any

import numpy as np

from xdevice.device import Device


def to_bits(tensor: Any) -> np.ndarray[Any, Any]:
    array: np.ndarray[Any, Any] = np.array(tensor)
    return array.reshape(-1).view(np.uint8)


def from_bits(
    bits: np.ndarray[Any, Any], shape: tuple[int, ...], dtype: Any, device: Device
) -> np.ndarray[Any, Any]:
    array: np.ndarray[Any, Any] = bits.view(np.dtype(dtype)).reshape(shape).copy()
    return array
