"""The bits of numbers that NumPy lacks, under TensorFlow: ml_dtypes, which it brings, gives NumPy dtypes for them."""

from typing import Any

import numpy as np
import tensorflow as tf

from xdevice.backends.tensorflow import creation, exchange
from xdevice.device import Device


def to_bits(tensor: Any) -> np.ndarray[Any, Any]:
    return exchange.to_numpy(tensor).reshape(-1).view(np.uint8)


def from_bits(
    bits: np.ndarray[Any, Any], shape: tuple[int, ...], dtype: Any, device: Device
) -> Any:
    return creation.tensor(
        bits.view(tf.as_dtype(dtype).as_numpy_dtype).reshape(shape), dtype, device
    )
