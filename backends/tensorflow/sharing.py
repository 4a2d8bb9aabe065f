"""The memory of eager TensorFlow tensors, and tensors on the memory of others."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

_Eager = type(tf.constant(0))  # it has no public name


def export(tensor: Any) -> tuple[Any, bool] | None:
    """Eager tensors, which never change; variables do, and TensorFlow copies scalars."""
    if type(tensor) is not _Eager or not tensor.shape.rank or not tensor.shape.num_elements():
        return None
    return tensor, False


def adopt(exporter: Any, writable: bool) -> Any:
    if writable or not exporter.shape:
        return None
    return tf.experimental.dlpack.from_dlpack(exporter.__dlpack__())  # it takes capsules only
