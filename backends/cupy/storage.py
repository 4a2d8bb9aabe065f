"""Raw bits of arrays; dtypes that NumPy lacks come from packages such as ml_dtypes."""

import cupy
import numpy as np
import numpy.typing as npt

from xdevice.backends.cupy.exchange import to_numpy
from xdevice.backends.cupy.hardware import native
from xdevice.contract import NativeDtype
from xdevice.device import Device


def to_bits(tensor: cupy.ndarray) -> npt.NDArray[np.uint8]:
    return to_numpy(tensor).reshape(-1).view(np.uint8)


def from_bits(
    bits: npt.NDArray[np.uint8], shape: tuple[int, ...], dtype: NativeDtype, device: Device
) -> cupy.ndarray:
    with native(device):
        return cupy.array(bits.view(np.dtype(dtype)).reshape(shape), blocking=True)
