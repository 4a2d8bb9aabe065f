"""Splitting, packing and reducing NumPy arrays."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from xdevice.backends.kit.reducing import reduced
from xdevice.contract import Tensor
from xdevice.errors import ArgumentTypeError

Array: TypeAlias = npt.NDArray[Any]

_ELEMENTWISE = {"sum": np.add, "max": np.maximum, "min": np.minimum}


def kind(tensor: Tensor) -> str:
    if np.ma.is_masked(tensor):
        raise ArgumentTypeError("the mask of a masked array would be lost; give x.filled(0)")
    dtype = tensor.dtype
    if dtype.kind in "fiubc":
        return str(dtype.kind)
    # the floating-point dtypes of ml_dtypes have the kind void
    if dtype.name.startswith(("bfloat", "float")):
        return "f"
    return "O"


def split(tensor: Array, sizes: Sequence[int]) -> list[Array]:
    return list(np.split(tensor, np.cumsum(sizes[:-1])))


def leaf(tensor: Array) -> Array:
    return tensor  # NumPy has no graph


def pack(tensors: Sequence[Array]) -> Array:
    return np.concatenate([np.ravel(tensor) for tensor in tensors])


def unpack(vector: Array, like: Sequence[Array]) -> list[Array]:
    sizes = [np.size(tensor) for tensor in like]
    parts = split(vector, sizes)
    return [part.reshape(np.shape(tensor)).copy() for part, tensor in zip(parts, like, strict=True)]


def reduce(vectors: Sequence[Array], op: str, weights: Sequence[float] | None) -> Array:
    result: Array = reduced(vectors, _ELEMENTWISE[op], weights)
    return result


def threads() -> Callable[[], AbstractContextManager[object]] | None:
    return nullcontext
