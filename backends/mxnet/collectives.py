"""Splitting, packing and reducing MXNet's arrays.

A slice shares memory with its array where MXNet can do so.
"""

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import accumulate, pairwise
from typing import TypeAlias

import mxnet as mx
import numpy as np
from mxnet import autograd
from mxnet.gluon import Parameter
from mxnet.ndarray import NDArray

from xdevice.backends.kit.reducing import reduced
from xdevice.backends.mxnet.hardware import gpus, replaced_gpus
from xdevice.backends.mxnet.placement import arrays
from xdevice.contract import Tensor, Vector
from xdevice.errors import ArgumentTypeError, NotSupportedError

Context: TypeAlias = AbstractContextManager[None]

_ELEMENTWISE = {"sum": mx.np.add, "max": mx.np.maximum, "min": mx.np.minimum}


def kind(tensor: Tensor) -> str:
    if _is_sparse(tensor):
        raise ArgumentTypeError(f"a plain array is needed, and this is {_described(tensor)}")
    return _letter(arrays(tensor)[0])


def split(tensor: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    if getattr(tensor, "stype", "") == "row_sparse":
        raise NotSupportedError(f"mxnet cannot split {_described(tensor)}")
    with plain():
        return [tensor[start:end] for start, end in cuts(sizes)]


def leaf(tensor: Tensor) -> Tensor:
    if isinstance(tensor, Parameter):
        return tensor  # its `grad_req` decides whether it gets a gradient
    with plain():
        detached = tensor.detach()
        if _letter(detached) == "f":
            detached.attach_grad()
    return detached


def pack(tensors: Sequence[Tensor]) -> Vector:
    with plain():
        flat = [_flat(dense(arrays(tensor)[0]).as_np_ndarray()) for tensor in tensors]
        if len(flat) == 1:
            return flat[0].copy()
        sizes = [part.size for part in flat]
        vector = mx.np.empty(sum(sizes), dtype=flat[0].dtype, ctx=flat[0].ctx)
        for part, (start, end) in zip(flat, cuts(sizes), strict=True):
            if start < end:
                # copies into a view, faster than mx.np.concatenate, which copies in sequence
                part.copyto(vector[start:end])
        return vector


def unpack(vector: Vector, like: Sequence[Tensor]) -> list[Tensor]:
    sizes = [math.prod(tensor.shape) for tensor in like]
    tensors = []
    with plain():
        for (start, end), tensor in zip(cuts(sizes), like, strict=True):
            new = mx.np.empty(tensor.shape, dtype=vector.dtype, ctx=vector.ctx)
            if start < end:
                vector[start:end].copyto(_flat(new))
            is_np_array = isinstance(arrays(tensor)[0], mx.np.ndarray)
            tensors.append(new if is_np_array else new.as_nd_ndarray())
    return tensors


def _flat(array: Vector) -> Vector:
    """The array as a vector that shares its memory; the `reshape` of mx.np copies."""
    if array.ndim == 1 or array.size == 0:
        return array
    return NDArray.reshape(array, (-1,))


def reduce(vectors: Sequence[Vector], op: str, weights: Sequence[float] | None) -> Vector:
    with plain():
        return reduced(vectors, _ELEMENTWISE[op], weights)


def threads() -> Callable[[], Context] | None:
    """NumPy's shapes and arrays, and recording, are settings of each thread: copy this one's."""
    # all CPU contexts draw from one generator: threads would not draw repeatable numbers
    if replaced_gpus.number or not gpus():
        return None
    uses_np_shapes = mx.util.is_np_shape()
    uses_np_arrays = mx.util.is_np_array()
    is_training = autograd.is_training()
    mode = autograd.record if autograd.is_recording() else autograd.pause

    @contextmanager
    def same_settings() -> Generator[None]:
        shapes = mx.util.np_shape(uses_np_shapes)
        np_arrays = mx.util.np_array(uses_np_arrays)
        with shapes, np_arrays, mode(is_training):
            yield

    return same_settings


def dense(array: NDArray) -> NDArray:
    """The array, dense; the gradient of an embedding may be sparse."""
    return array.tostype("default") if _is_sparse(array) else array


def _is_sparse(tensor: Tensor) -> bool:
    return bool(getattr(tensor, "stype", "default") != "default")


def _described(tensor: Tensor) -> str:
    return f"a {tensor.stype} array; take its tostype('default') first"


def _letter(tensor: Tensor) -> str:
    letter = np.dtype(tensor.dtype).kind
    return letter if letter in "fiubc" else "O"


def cuts(sizes: Iterable[int]) -> Iterator[tuple[int, int]]:
    """The start and the end of each part, for parts of these sizes."""
    return pairwise(accumulate(sizes, initial=0))


@contextmanager
def plain() -> Generator[None]:
    """A block that records nothing, with NumPy's shapes.

    Without NumPy's shapes, MXNet treats the shapes of scalars and empty arrays as unknown.
    """
    with mx.util.np_shape(True), autograd.pause():
        yield
