"""Raw bits of arrays; dtypes that NumPy lacks come from packages such as ml_dtypes."""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from xdevice.contract import NativeDtype, Tensor
from xdevice.device import Device

Array: TypeAlias = npt.NDArray[Any]
Bits: TypeAlias = npt.NDArray[np.uint8]


def to_bits(tensor: Tensor) -> Bits:
    array: Array = np.array(tensor)
    return array.reshape(-1).view(np.uint8)


def from_bits(bits: Bits, shape: tuple[int, ...], dtype: NativeDtype, device: Device) -> Array:
    array: Array = bits.view(np.dtype(dtype)).reshape(shape).copy()
    return array
