"""Splitting, packing and reducing PaddlePaddle tensors."""

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TypeAlias

import paddle

from xdevice.backends.paddle.placement import dense, dtype_name
from xdevice.contract import Tensor, Vector
from xdevice.errors import ArgumentTypeError, NotSupportedError

Operation: TypeAlias = Callable[[Tensor, Tensor], Tensor]

_ELEMENTWISE: dict[str, Operation] = {
    "sum": paddle.add,
    "max": paddle.maximum,
    "min": paddle.minimum,
}
_WIDER = {
    "float16": "float32",
    "bfloat16": "float32",
    "int8": "int32",
    "uint8": "int32",
    "int16": "int32",
}
"""The dtypes in which some dtypes are reduced.

Paddle's CPU kernels lack addition of 16-bit floats, and comparison of small integers.
"""
_STORED = ("float8_e4m3fn", "float8_e5m2")
_USUAL = {"bool", "uint8", "int32", "int64", "bfloat16", "float16", "float32", "float64"}
_LETTERS = {"bool": "b", "uint": "u", "int": "i", "bfloat": "f", "float": "f", "complex": "c"}


def kind(tensor: Tensor) -> str:
    if not tensor.is_dense():
        raise ArgumentTypeError(
            "a plain array is needed, and this is a sparse tensor; take its to_dense() first"
        )
    family = dtype_name(tensor).partition("_")[0].rstrip("0123456789")  # of "float8_e5m2": "float"
    return _LETTERS.get(family, "O")


def split(tensor: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    _check(tensor, "split")
    with paddle.no_grad():
        return list(paddle.split(dense(tensor, "split"), list(sizes)))


def _check(tensor: Tensor, verb: str) -> None:
    """Raise an error for a dtype that PaddlePaddle can store, but not compute with."""
    if dtype_name(tensor) in _STORED:
        raise NotSupportedError(
            f"paddle cannot {verb} {dtype_name(tensor)}; convert it first with .astype('float32')"
        )


def leaf(tensor: Tensor) -> Tensor:
    detached = tensor.detach()  # not a clone: the clone of a parameter is not a leaf
    detached.stop_gradient = kind(detached) not in "fc"
    return detached


def pack(tensors: Sequence[Tensor]) -> Vector:
    with paddle.no_grad():
        flat = [dense(tensor).detach().reshape([-1]) for tensor in tensors]
        return paddle.concat(flat) if len(flat) > 1 else flat[0].clone()


def is_packable(tensor: Tensor, nbytes: int) -> bool:
    if type(tensor) is not paddle.Tensor or not tensor.stop_gradient or not tensor.is_dense():
        return False
    is_usual = dtype_name(tensor) in _USUAL and tensor.is_contiguous()
    return is_usual and 0 < int(tensor.size) * tensor.element_size() <= nbytes


def unpack(vector: Vector, like: Sequence[Tensor]) -> list[Tensor]:
    with paddle.no_grad():
        sizes = [tensor.size for tensor in like]
        if len(sizes) > 1:
            parts = paddle.split(vector, sizes)
        else:
            parts = [vector.clone()]
        return [part.reshape(tensor.shape) for part, tensor in zip(parts, like, strict=True)]


def reduce(vectors: Sequence[Vector], op: str, weights: Sequence[float] | None) -> Vector:
    _check(vectors[0], "reduce")
    with paddle.no_grad():
        first = vectors[0]
        wider = _WIDER.get(dtype_name(first))
        if wider is not None:
            vectors = [vector.astype(wider) for vector in vectors]
        if weights is not None:
            pairs = zip(vectors, weights, strict=True)
            vectors = [vector * weight for vector, weight in pairs]
        result = functools.reduce(_ELEMENTWISE[op], vectors)
        if wider is not None:
            return result.astype(first.dtype)
        return first.clone() if result is first else result


def threads() -> Callable[[], AbstractContextManager[None]] | None:
    return None  # PaddlePaddle 3.3.1 crashes when two threads compute gradients
