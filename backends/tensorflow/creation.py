"""New TensorFlow tensors."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from xdevice.backends.tensorflow.hardware import scope
from xdevice.backends.tensorflow.placement import arrived, copy, role
from xdevice.device import Device
from xdevice.errors import NotSupportedError


def dtype(name: str) -> Any:
    found = getattr(tf, name, None)
    return found if isinstance(found, tf.DType) and _is_number(found) else None


def tensor(data: Any, dtype: Any, device: Device | None) -> Any:
    return _made(lambda: _tensor(data, dtype), device)


def empty(shape: tuple[int, ...], dtype: Any, device: Device | None) -> Any:
    return _made(lambda: tf.raw_ops.Empty(shape=shape, dtype=dtype or tf.float32), device)


def _of_shape(make: Callable[..., Any], is_random: bool = False) -> Callable[..., Any]:
    def made(shape: tuple[int, ...], dtype: Any, device: Device | None) -> Any:
        if is_random and dtype is not None and not dtype.is_floating:
            raise TypeError(f"random numbers are real, not {dtype.name}")
        return _made(lambda: make(_sizes(shape), dtype=dtype or tf.float32), device)

    return made


zeros, ones = map(_of_shape, (tf.zeros, tf.ones))
rand, randn = map(_of_shape, (tf.random.uniform, tf.random.normal), (True, True))


def full(shape: tuple[int, ...], value: Any, dtype: Any, device: Device | None) -> Any:
    def filled() -> Any:
        is_tensor = role(type(value)) == "tensor"  # its gradient flows through
        number = (
            tf.reshape(tf.cast(value, dtype or value.dtype), ())
            if is_tensor
            else _tensor(value, dtype)
        )
        return tf.fill(_sizes(shape), number)

    return _made(filled, device)


def arange(start: Any, stop: Any, step: Any, dtype: Any, device: Device | None) -> Any:
    def numbers() -> Any:
        # tf.range knows few dtypes, so count in the widest; without a dtype take TensorFlow's own
        with tf.device("CPU:0"):
            likely = tf.constant([start, stop, step]).dtype
        wide = tf.int64 if likely.is_integer else tf.float64
        return tf.cast(tf.range(start, stop, step, dtype=wide), dtype or likely)

    return _made(numbers, device)


def seed(n: int) -> None:
    if not tf.executing_eagerly():
        raise NotSupportedError(
            "tf.function would run seed when it is traced, not at each call; call it outside"
        )
    tf.random.set_seed(n)  # every device's generator


def _made(make: Callable[[], Any], device: Device | None) -> Any:
    try:
        if device is None:
            return make()
        with scope(device):
            made = make()
    except tf.errors.InvalidArgumentError as error:
        raise ValueError(error.message) from error
    return arrived(made, device)


def _tensor(data: Any, dtype: Any) -> Any:
    if role(type(data)) == "tensor":
        data = tf.convert_to_tensor(data)
        return tf.stop_gradient(copy(data) if dtype in (None, data.dtype) else tf.cast(data, dtype))
    try:
        made = constant(data, dtype)
    except TypeError:
        if dtype is None:
            raise
        made = tf.cast(
            tf.constant(data), dtype
        )  # tf.constant takes no 1.5 for an integer, no 1 for a bool
    except ValueError:
        made = constant(
            np.asarray(data).tolist(), dtype
        )  # nor numbers of several kinds in one list
    if not _is_number(made.dtype):
        raise TypeError(f"{made.dtype.name} is not a numeric dtype")
    return made


def constant(value: Any, dtype: Any) -> Any:
    """A new tensor: unlike ``tf.convert_to_tensor``, ``tf.constant`` promises to copy.

    TensorFlow 2.21 keeps the tensors of Python's numbers, and gives the one of -0.0 for 0.0 too,
    since the two are equal; it does not keep those of arrays.
    """
    if type(value) is float and value == 0.0:
        value = np.asarray(value, "float32" if dtype is None else "float64")
        return tf.cast(tf.constant(value), dtype or tf.float32)
    return tf.constant(value, dtype)


def _sizes(shape: tuple[int, ...]) -> Any:
    # int32 stays on the host, where a GPU's kernels read a shape
    return tf.constant(shape, tf.int32 if max(shape, default=0) < 2**31 else tf.int64)


def _is_number(dtype: tf.DType) -> bool:
    return bool(dtype.is_floating or dtype.is_integer or dtype.is_complex or dtype.is_bool)
