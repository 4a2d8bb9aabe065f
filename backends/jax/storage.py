"""The bits of numbers that NumPy lacks, under JAX: its own package ml_dtypes gives NumPy dtypes for them."""

from typing import Any

import numpy as np

from xdevice.backends.jax import creation, exchange
from xdevice.device import Device


def to_bits(tensor: Any) -> np.ndarray[Any, Any]:
    return exchange.to_numpy(tensor).reshape(-1).view(np.uint8)


def from_bits(
    bits: np.ndarray[Any, Any], shape: tuple[int, ...], dtype: Any, device: Device
) -> Any:
    return creation.tensor(bits.view(np.dtype(dtype)).reshape(shape), dtype, device)
