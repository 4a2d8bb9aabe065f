"""Raw bits of tensors whose dtype NumPy lacks; ml_dtypes has NumPy dtypes for them."""

from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from xdevice.backends.tensorflow import creation, exchange
from xdevice.contract import NativeDtype, Tensor
from xdevice.device import Device

Array: TypeAlias = np.ndarray[Any, Any]


def to_bits(tensor: Tensor) -> Array:
    return exchange.to_numpy(tensor).reshape(-1).view(np.uint8)


def from_bits(bits: Array, shape: tuple[int, ...], dtype: NativeDtype, device: Device) -> Tensor:
    numpy_dtype = tf.as_dtype(dtype).as_numpy_dtype
    return creation.tensor(bits.view(numpy_dtype).reshape(shape), dtype, device)
