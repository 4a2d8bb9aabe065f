"""Splitting, packing and reducing tensors, by TensorFlow.

Operations run in the scope, wherever their operands are, so each is run in the scope of its
operands' device. tf.concat and tf.split return a single tensor as it is. Values never change, so
parts may share memory with the tensor.
"""

import functools
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import accumulate
from typing import TypeAlias

import numpy as np
import tensorflow as tf

from xdevice.backends.tensorflow.hardware import scope
from xdevice.backends.tensorflow.placement import COMPOSITES, arrived, copy, described, device_of
from xdevice.backends.tensorflow.private_names import unrecorded
from xdevice.contract import Tensor, Vector
from xdevice.device import Device
from xdevice.errors import ArgumentTypeError, NotSupportedError

Operation: TypeAlias = Callable[[Tensor, Tensor], Tensor]
Shape: TypeAlias = tf.TensorShape | tuple[int, ...]

ELEMENTWISE: dict[str, Operation] = {
    "sum": tf.add,
    "max": tf.maximum,
    "min": tf.minimum,
}


def kind(tensor: Tensor) -> str:
    dtype = tf.as_dtype(tensor.dtype)
    if isinstance(tensor, COMPOSITES):
        raise ArgumentTypeError(f"a plain array is needed, and this is {described(tensor)}")
    if dtype.is_integer:
        return "u" if dtype.is_unsigned else "i"
    if dtype.is_floating:
        return "f"
    if dtype.is_complex:
        return "c"
    return "b" if dtype.is_bool else "O"


def split(tensor: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    if isinstance(tensor, tf.IndexedSlices):
        raise NotSupportedError(f"tensorflow cannot split {described(tensor)}")
    if tensor.dtype.is_quantized:
        raise NotSupportedError(
            f"tensorflow cannot split {tensor.dtype.name}; tf.bitcast it to integers first"
        )
    device = device_of(tensor)
    with scope(device):
        if not isinstance(tensor, COMPOSITES):
            return [arrived(part, device) for part in tf.split(tensor, list(sizes))]
        starts = accumulate(sizes, initial=0)
        return [_rows(tensor, start, size) for start, size in zip(starts, sizes, strict=False)]


def _rows(tensor: tf.RaggedTensor | tf.SparseTensor, start: int, size: int) -> Tensor:
    if isinstance(tensor, tf.RaggedTensor):
        return tensor[start : start + size]
    row_shape = tensor.shape[1:]
    return tf.sparse.slice(tensor, [start, *[0] * len(row_shape)], [size, *row_shape])


def leaf(tensor: Tensor) -> Tensor:
    return tensor  # a tape watches only what it is asked to watch


def pack(tensors: Sequence[Tensor]) -> Vector:
    device = device_of(tensors[0])
    with apart(device):
        flat = [_reshaped(tf.convert_to_tensor(tensor), (-1,), device) for tensor in tensors]
        if len(flat) == 1:
            return copy(flat[0])
        return arrived(tf.concat(flat, 0), device)


def is_packable(tensor: Tensor, nbytes: int) -> bool:
    if type(tensor) is not tf.__internal__.EagerTensor:
        return False
    if np.dtype(tensor.dtype.as_numpy_dtype).kind not in "fc":
        return False  # GPUs have no kernel that splits other vectors
    return bool(0 < tensor.dtype.size * tensor.shape.num_elements() <= nbytes)


def unpack(vector: Vector, like: Sequence[Tensor]) -> list[Tensor]:
    device = device_of(vector)
    shapes = [tensor.shape for tensor in like]
    with apart(device):
        parts = [vector]
        if len(shapes) > 1:
            parts = tf.split(vector, [shape.num_elements() for shape in shapes])
        pairs = zip(parts, shapes, strict=True)
        return [arrived(_reshaped(part, shape, device), device) for part, shape in pairs]


def reduce(vectors: Sequence[Vector], op: str, weights: Sequence[float] | None) -> Vector:
    device = device_of(vectors[0])
    with apart(device):
        if weights is not None:
            pairs = zip(vectors, weights, strict=True)
            vectors = [vector * tf.constant(weight, vector.dtype) for vector, weight in pairs]
        if len(vectors) == 1:
            return copy(vectors[0])
        return arrived(functools.reduce(ELEMENTWISE[op], vectors), device)


def threads() -> Callable[[], AbstractContextManager[None]] | None:
    # each thread must have a device of its own: threads whose operations run on one GPU exchange
    # operands in the host's memory, such as shapes (tensorflow issue 123980)
    return nullcontext


@contextmanager
def apart(device: Device) -> Generator[None]:
    """A block whose operations run on the device, and are not recorded on a tape."""
    with unrecorded(), scope(device):
        yield


def _reshaped(tensor: Tensor, shape: Shape, device: Device) -> Tensor:
    """The reshaped tensor.

    `tf.reshape` takes five times as long, mostly to make a tensor of the shape.
    """
    return tf.raw_ops.Reshape(tensor=tensor, shape=_as_tensor(tuple(shape), device))


@functools.lru_cache(maxsize=4096)
def _as_tensor(shape: tuple[int, ...], device: Device) -> Tensor:
    with tf.init_scope(), scope(device):
        return tf.constant(shape, tf.int64)
