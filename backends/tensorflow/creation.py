"""New TensorFlow tensors."""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from xdevice.backends.tensorflow.hardware import scope
from xdevice.backends.tensorflow.placement import arrived, category, copy
from xdevice.contract import NativeDtype, Tensor
from xdevice.device import Device
from xdevice.errors import NotSupportedError

Shape: TypeAlias = tuple[int, ...]
Number: TypeAlias = Any
Factory: TypeAlias = Callable[..., Tensor]


def dtype(name: str) -> NativeDtype | None:
    value = getattr(tf, name, None)
    return value if isinstance(value, tf.DType) and _is_number(value) else None


def tensor(data: Any, dtype: NativeDtype | None, device: Device | None) -> Tensor:
    return _created(lambda: _tensor(data, dtype), device)


def empty(shape: Shape, dtype: NativeDtype | None, device: Device | None) -> Tensor:
    return _created(lambda: tf.raw_ops.Empty(shape=shape, dtype=dtype or tf.float32), device)


def _of_shape(factory: Factory, is_random: bool = False) -> Factory:
    def create(shape: Shape, dtype: NativeDtype | None, device: Device | None) -> Tensor:
        if is_random and dtype is not None and not dtype.is_floating:
            raise TypeError(f"random numbers are real, not {dtype.name}")
        return _created(lambda: factory(_sizes(shape), dtype=dtype or tf.float32), device)

    return create


zeros, ones = map(_of_shape, (tf.zeros, tf.ones))
rand, randn = map(_of_shape, (tf.random.uniform, tf.random.normal), (True, True))


def full(shape: Shape, value: Number, dtype: NativeDtype | None, device: Device | None) -> Tensor:
    def filled() -> Tensor:
        if category(type(value)) == "tensor":  # its gradient flows through
            number = tf.reshape(tf.cast(value, dtype or value.dtype), ())
        else:
            number = _tensor(value, dtype)
        return tf.fill(_sizes(shape), number)

    return _created(filled, device)


def arange(
    start: Number, stop: Number, step: Number, dtype: NativeDtype | None, device: Device | None
) -> Tensor:
    def numbers() -> Tensor:
        # tf.range knows few dtypes, so count in the widest; without a dtype take TensorFlow's own
        with tf.device("CPU:0"):
            likely = tf.constant([start, stop, step]).dtype
        wide = tf.int64 if likely.is_integer else tf.float64
        return tf.cast(tf.range(start, stop, step, dtype=wide), dtype or likely)

    return _created(numbers, device)


def seed(n: int) -> None:
    if not tf.executing_eagerly():
        raise NotSupportedError(
            "tf.function would run seed when it is traced, not at each call; call it outside"
        )
    tf.random.set_seed(n)  # every device's generator


def _created(create: Callable[[], Tensor], device: Device | None) -> Tensor:
    try:
        if device is None:
            return create()
        with scope(device):
            new_tensor = create()
    except tf.errors.InvalidArgumentError as error:
        raise ValueError(error.message) from error
    return arrived(new_tensor, device)


def _tensor(data: Any, dtype: NativeDtype | None) -> Tensor:
    if type(data) is not list and category(type(data)) == "tensor":
        data = tf.convert_to_tensor(data)
        keeps_dtype = dtype in (None, data.dtype)
        return tf.stop_gradient(copy(data) if keeps_dtype else tf.cast(data, dtype))
    try:
        new_tensor = constant(data, dtype)
    except TypeError:
        if dtype is None:
            raise
        # tf.constant does not take 1.5 for an integer, nor 1 for a bool
        new_tensor = tf.cast(tf.constant(data), dtype)
    except ValueError:
        # nor numbers of several kinds in one list
        new_tensor = constant(np.asarray(data).tolist(), dtype)
    if not _is_number(new_tensor.dtype):
        raise TypeError(f"{new_tensor.dtype.name} is not a numeric dtype")
    return new_tensor


def constant(value: Any, dtype: NativeDtype | None) -> Tensor:
    """A new tensor: unlike ``tf.convert_to_tensor``, ``tf.constant`` promises to copy.

    TensorFlow 2.21 keeps the tensors of Python's numbers, and gives the one of -0.0 for 0.0 too,
    since the two are equal; it does not keep those of arrays.
    """
    if type(value) is float and value == 0.0:
        value = np.asarray(value, "float32" if dtype is None else "float64")
        return tf.cast(tf.constant(value), dtype or tf.float32)
    return tf.constant(value, dtype)


def _sizes(shape: Shape) -> Tensor:
    # int32 stays on the host, where a GPU's kernels read a shape
    fits_int32 = max(shape, default=0) < 2**31
    return tf.constant(shape, tf.int32 if fits_int32 else tf.int64)


def _is_number(dtype: tf.DType) -> bool:
    return bool(dtype.is_floating or dtype.is_integer or dtype.is_complex or dtype.is_bool)
