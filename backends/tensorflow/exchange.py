"""TensorFlow tensors as NumPy arrays, and memory shared with other frameworks."""

from typing import Any

import numpy as np
import tensorflow as tf

from xdevice.backends.tensorflow.placement import (
    COMPOSITES,
    Eager,
    check_values,
    described,
    device_of,
)
from xdevice.errors import NotSupportedError, UnknownPlacementError


def to_numpy(tensor: Any) -> np.ndarray[Any, Any]:
    if isinstance(tensor, COMPOSITES):
        raise NotSupportedError(f"NumPy cannot hold {described(tensor)}")
    device_of(tensor)  # raises where there are no values
    check_values(tensor)
    if not isinstance(tensor, tf.Tensor) and not tf.executing_eagerly():
        raise UnknownPlacementError(
            "a variable has no value while a tf.function is traced; read it outside"
        )
    return np.asarray(tensor.numpy())  # a copy; of shape () a NumPy scalar, made an array again


def export(tensor: Any) -> tuple[Any, bool] | None:
    """Eager tensors, which never change; variables do, and TensorFlow copies scalars."""
    plain = type(tensor) is Eager and tensor.shape.rank and tensor.shape.num_elements()
    return (tensor, False) if plain else None


def adopt(exporter: Any, writable: bool) -> Any:
    if writable or not exporter.shape:
        return None
    return tf.experimental.dlpack.from_dlpack(exporter.__dlpack__())  # it takes capsules only
