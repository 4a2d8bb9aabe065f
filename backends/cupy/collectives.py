"""Splitting, packing and reducing CuPy arrays, each on its own device."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import accumulate

import cupy

from xdevice.backends.kit.reducing import reduced

_ELEMENTWISE = {"sum": cupy.add, "max": cupy.maximum, "min": cupy.minimum}


def kind(tensor: cupy.ndarray) -> str:
    dtype = tensor.dtype
    if dtype.kind in "fiubc":
        return str(dtype.kind)
    # the floating-point dtypes of ml_dtypes have the kind void
    if dtype.name.startswith(("bfloat", "float")):
        return "f"
    return "O"


def split(tensor: cupy.ndarray, sizes: Sequence[int]) -> list[cupy.ndarray]:
    return [tensor[end - size : end] for size, end in zip(sizes, accumulate(sizes), strict=True)]


def leaf(tensor: cupy.ndarray) -> cupy.ndarray:
    return tensor  # CuPy has no graph


def pack(tensors: Sequence[cupy.ndarray]) -> cupy.ndarray:
    with tensors[0].device:
        return cupy.concatenate([tensor.ravel() for tensor in tensors])


def unpack(vector: cupy.ndarray, like: Sequence[cupy.ndarray]) -> list[cupy.ndarray]:
    with vector.device:
        parts = split(vector, [tensor.size for tensor in like])
        return [part.reshape(tensor.shape).copy() for part, tensor in zip(parts, like, strict=True)]


def reduce(
    vectors: Sequence[cupy.ndarray], op: str, weights: Sequence[float] | None
) -> cupy.ndarray:
    with vectors[0].device:
        return reduced(vectors, _ELEMENTWISE[op], weights)


def threads() -> Callable[[], AbstractContextManager[object]] | None:
    return nullcontext
