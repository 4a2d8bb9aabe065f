"""Splitting, packing and reducing NumPy arrays."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from xdevice.errors import ArgumentTypeError
from xdevice.kit.reducing import reduced

_ELEMENTWISE = {"sum": np.add, "max": np.maximum, "min": np.minimum}


def kind(tensor: Any) -> str:
    if np.ma.is_masked(tensor):
        raise ArgumentTypeError("the mask of a masked array would be lost; give x.filled(0)")
    dtype = tensor.dtype
    if dtype.kind in "fiubc":
        return str(dtype.kind)
    # the floating-point dtypes of ml_dtypes have the kind void
    is_float = dtype.name.startswith(("bfloat", "float"))
    return "f" if is_float else "O"


def split(tensor: Any, sizes: Sequence[int]) -> list[Any]:
    return list(np.split(tensor, np.cumsum(sizes[:-1])))


def leaf(tensor: Any) -> Any:
    return tensor  # NumPy has no graph


def pack(tensors: Sequence[Any]) -> Any:
    return np.concatenate([np.ravel(tensor) for tensor in tensors])


def unpack(vector: Any, like: Sequence[Any]) -> list[Any]:
    parts = np.split(vector, np.cumsum([np.size(tensor) for tensor in like])[:-1])
    return [part.reshape(np.shape(tensor)).copy() for part, tensor in zip(parts, like, strict=True)]


def reduce(vectors: Sequence[Any], op: str, weights: Sequence[float] | None) -> Any:
    return reduced(vectors, _ELEMENTWISE[op], weights)


def threads() -> Callable[[], AbstractContextManager[Any]] | None:
    return nullcontext
