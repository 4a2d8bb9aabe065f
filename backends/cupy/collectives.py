"""Splitting, packing and reducing CuPy arrays, each on its own device."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import accumulate
from typing import Any

import cupy

from xdevice.kit.reducing import reduced

_ELEMENTWISE = {"sum": cupy.add, "max": cupy.maximum, "min": cupy.minimum}


def kind(tensor: Any) -> str:
    dtype = tensor.dtype
    if dtype.kind in "fiubc":
        return str(dtype.kind)
    # the floating-point dtypes of ml_dtypes have the kind void
    is_float = dtype.name.startswith(("bfloat", "float"))
    return "f" if is_float else "O"


def split(tensor: Any, sizes: Sequence[int]) -> list[Any]:
    return [tensor[end - size : end] for size, end in zip(sizes, accumulate(sizes), strict=True)]


def leaf(tensor: Any) -> Any:
    return tensor  # CuPy has no graph


def pack(tensors: Sequence[Any]) -> Any:
    with tensors[0].device:
        return cupy.concatenate([tensor.ravel() for tensor in tensors])


def unpack(vector: Any, like: Sequence[Any]) -> list[Any]:
    with vector.device:
        parts = split(vector, [tensor.size for tensor in like])
        return [part.reshape(tensor.shape).copy() for part, tensor in zip(parts, like, strict=True)]


def reduce(vectors: Sequence[Any], op: str, weights: Sequence[float] | None) -> Any:
    with vectors[0].device:
        return reduced(vectors, _ELEMENTWISE[op], weights)


def threads() -> Callable[[], AbstractContextManager[Any]] | None:
    return nullcontext
