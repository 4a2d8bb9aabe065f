"""Splitting, packing and reducing tensors, by TensorFlow.

Operations run in the scope, wherever their operands are, so each is run in the scope of its
operands' device. tf.concat and tf.split return a single tensor as it is. Values never change, so
parts may share memory with the tensor.
"""

import functools
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import accumulate
from typing import Any

import numpy as np
import tensorflow as tf

from xdevice.backends.tensorflow.hardware import scope
from xdevice.backends.tensorflow.placement import COMPOSITES, arrived, copy, described, device_of
from xdevice.backends.tensorflow.private_names import unrecorded
from xdevice.device import Device
from xdevice.errors import ArgumentTypeError, NotSupportedError

ELEMENTWISE: dict[str, Callable[[Any, Any], Any]] = {
    "sum": tf.add,
    "max": tf.maximum,
    "min": tf.minimum,
}


def kind(tensor: Any) -> str:
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


def split(tensor: Any, sizes: Sequence[int]) -> list[Any]:
    if isinstance(tensor, tf.IndexedSlices):
        raise NotSupportedError(f"tensorflow cannot split {described(tensor)}")
    if tensor.dtype.is_quantized:
        raise NotSupportedError(
            f"tensorflow cannot split {tensor.dtype.name}; tf.bitcast it to integers first"
        )
    device = device_of(tensor)
    others = tensor.shape[1:]
    with scope(device):
        if not isinstance(tensor, COMPOSITES):
            return [arrived(part, device) for part in tf.split(tensor, list(sizes))]
        rows = [(end - n, n) for n, end in zip(sizes, accumulate(sizes), strict=True)]
        if isinstance(tensor, tf.RaggedTensor):
            return [tensor[start : start + n] for start, n in rows]
        return [
            tf.sparse.slice(tensor, [start, *[0] * len(others)], [n, *others]) for start, n in rows
        ]


def leaf(tensor: Any) -> Any:
    return tensor  # a tape watches only what it is asked to watch


def pack(tensors: Sequence[Any]) -> Any:
    device = device_of(tensors[0])
    with apart(device):
        flat = [_reshaped(tf.convert_to_tensor(tensor), (-1,), device) for tensor in tensors]
        return arrived(tf.concat(flat, 0), device) if len(flat) > 1 else copy(flat[0])


def is_packable(tensor: Any, nbytes: int) -> bool:
    if type(tensor) is not tf.__internal__.EagerTensor:
        return False
    if np.dtype(tensor.dtype.as_numpy_dtype).kind not in "fc":
        return False  # GPUs have no kernel that splits other vectors
    return bool(0 < tensor.dtype.size * tensor.shape.num_elements() <= nbytes)


def unpack(vector: Any, like: Sequence[Any]) -> list[Any]:
    device = device_of(vector)
    shapes = [tensor.shape for tensor in like]
    with apart(device):
        if len(shapes) > 1:
            parts = tf.split(vector, [shape.num_elements() for shape in shapes])
        else:
            parts = [copy(vector)]
        pairs = zip(parts, shapes, strict=True)
        return [arrived(_reshaped(part, shape, device), device) for part, shape in pairs]


def reduce(vectors: Sequence[Any], op: str, weights: Sequence[float] | None) -> Any:
    device = device_of(vectors[0])
    with apart(device):
        if weights is not None:
            pairs = zip(vectors, weights, strict=True)
            vectors = [vector * tf.constant(weight, vector.dtype) for vector, weight in pairs]
        if len(vectors) == 1:
            return copy(vectors[0])
        return arrived(functools.reduce(ELEMENTWISE[op], vectors), device)


def threads() -> Callable[[], AbstractContextManager[Any]] | None:
    return nullcontext


@contextmanager
def apart(device: Device) -> Generator[None]:
    """A block whose operations run on the device, and are not recorded on a tape."""
    with unrecorded(), scope(device):
        yield


def _reshaped(tensor: Any, shape: Any, device: Device) -> Any:
    """The same as `tf.reshape`, which takes five times as long, mostly to make a tensor of the shape."""
    return tf.raw_ops.Reshape(tensor=tensor, shape=_as_tensor(tuple(shape), device))


@functools.lru_cache(maxsize=4096)
def _as_tensor(shape: tuple[int, ...], device: Device) -> Any:
    with tf.init_scope(), scope(device):
        return tf.constant(shape, tf.int64)
