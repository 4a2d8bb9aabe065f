"""Splitting, packing and reducing arrays, by the array API standard's functions alone."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import accumulate

import array_api_strict as xp

from xdevice.contract import Tensor, Vector

_ELEMENTWISE = {"sum": xp.add, "max": xp.maximum, "min": xp.minimum}
_KINDS = {
    "real floating": "f",
    "signed integer": "i",
    "unsigned integer": "u",
    "bool": "b",
    "complex floating": "c",
}


def kind(tensor: Tensor) -> str:
    return next(letter for kind, letter in _KINDS.items() if xp.isdtype(tensor.dtype, kind))


def split(tensor: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    ends = accumulate(sizes)
    return [tensor[end - size : end, ...] for size, end in zip(sizes, ends, strict=True)]


def leaf(tensor: Tensor) -> Tensor:
    return tensor  # array-api-strict has no graph


def pack(tensors: Sequence[Tensor]) -> Vector:
    return xp.concat([xp.reshape(tensor, (-1,)) for tensor in tensors])


def unpack(vector: Vector, like: Sequence[Tensor]) -> list[Tensor]:
    parts = split(vector, [tensor.size for tensor in like])
    return [
        xp.reshape(part, tensor.shape, copy=True) for part, tensor in zip(parts, like, strict=True)
    ]


def reduce(vectors: Sequence[Vector], op: str, weights: Sequence[float] | None) -> Vector:
    if weights is not None:
        vectors = [vector * weight for vector, weight in zip(vectors, weights, strict=True)]
    result = xp.asarray(vectors[0], copy=True)
    for vector in vectors[1:]:
        result = _ELEMENTWISE[op](result, vector)
    return result


def threads() -> Callable[[], AbstractContextManager[object]] | None:
    return nullcontext
