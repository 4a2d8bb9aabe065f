"""The bits of numbers that NumPy lacks.

JAX's own package ml_dtypes gives NumPy dtypes for them.
"""

import numpy as np
import numpy.typing as npt

from xdevice.backends.jax import creation, exchange
from xdevice.contract import NativeDtype, Tensor
from xdevice.device import Device


def to_bits(tensor: Tensor) -> npt.NDArray[np.uint8]:
    return exchange.to_numpy(tensor).reshape(-1).view(np.uint8)


def from_bits(
    bits: npt.NDArray[np.uint8], shape: tuple[int, ...], dtype: NativeDtype, device: Device
) -> Tensor:
    return creation.tensor(bits.view(np.dtype(dtype)).reshape(shape), dtype, device)
