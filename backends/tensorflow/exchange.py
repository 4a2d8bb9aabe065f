"""TensorFlow tensors as NumPy arrays, and memory shared with other frameworks."""

from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from xdevice.backends.tensorflow.placement import (
    COMPOSITES,
    Eager,
    check_values,
    described,
    device_of,
)
from xdevice.contract import Tensor
from xdevice.errors import NotSupportedError, UnknownPlacementError

Array: TypeAlias = np.ndarray[Any, Any]
Exporter: TypeAlias = Any  # an object with the methods of DLPack


def to_numpy(tensor: Tensor) -> Array:
    if type(tensor) is Eager:
        try:
            # a copy; for shape () TensorFlow returns a NumPy scalar
            return np.asarray(tensor.numpy())
        except tf.errors.InvalidArgumentError:
            pass  # a handle, which the following questions explain
    if isinstance(tensor, COMPOSITES):
        raise NotSupportedError(f"NumPy cannot hold {described(tensor)}")
    device_of(tensor)  # raises if there are no values
    check_values(tensor)
    if not isinstance(tensor, tf.Tensor) and not tf.executing_eagerly():
        raise UnknownPlacementError(
            "a variable has no value while a tf.function is traced; read it outside"
        )
    return np.asarray(tensor.numpy())


def export(tensor: Tensor) -> tuple[Exporter, bool] | None:
    """Eager tensors, which never change; variables do, and TensorFlow copies scalars."""
    if type(tensor) is not Eager or not tensor.shape.rank or not tensor.shape.num_elements():
        return None
    return tensor, False


def adopt(exporter: Exporter, writable: bool) -> Tensor | None:
    if writable or not exporter.shape:
        return None
    # from_dlpack accepts capsules only
    return tf.experimental.dlpack.from_dlpack(exporter.__dlpack__())
