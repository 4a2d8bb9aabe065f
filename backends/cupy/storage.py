"""Raw bits of arrays; dtypes that NumPy lacks come from packages such as ml_dtypes."""

from typing import Any

import cupy
import numpy as np

from xdevice.backends.cupy.exchange import to_numpy
from xdevice.backends.cupy.hardware import native
from xdevice.device import Device


def to_bits(tensor: Any) -> np.ndarray[Any, Any]:
    return to_numpy(tensor).reshape(-1).view(np.uint8)


def from_bits(
    bits: np.ndarray[Any, Any], shape: tuple[int, ...], dtype: Any, device: Device
) -> Any:
    with native(device):
        return cupy.array(bits.view(np.dtype(dtype)).reshape(shape), blocking=True)
