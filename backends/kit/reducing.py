"""Reducing vectors in one process, and the dtype of a mean of several."""

from collections.abc import Callable, Sequence

from xdevice.contract import Vector

# The sum of so many equal values is exact in any order of additions. It is not
# for three, five or eight values.
_EXACT = (1, 2, 4)
_WIDER = {"float32": "float64", "complex64": "complex128"}
_NARROW = ("float16", "bfloat16", "float8")


def summed_in(name: str, size: int) -> str:
    """The dtype in which ``size`` processes add up numbers for their mean.

    ``name`` is the numbers' own dtype.

    The sum of equal numbers is exact in it, and the sum of narrow ones does
    not overflow. No dtype is wider than float64: the last bit of its mean may
    differ.

    >>> summed_in("float16", 2), summed_in("float32", 2), summed_in("float32", 3)
    ('float32', 'float32', 'float64')
    """
    if name.startswith(_NARROW):
        return "float32"
    if size in _EXACT:
        return name
    return _WIDER.get(name, name)


def reduced(
    vectors: Sequence[Vector],
    combine: Callable[..., Vector],
    weights: Sequence[float] | None,
) -> Vector:
    """A new vector: the vectors, combined in their order.

    With weights, each vector is multiplied by its weight first.

    >>> import numpy as np
    >>> reduced([np.ones(2), np.full(2, 3.0)], np.add, [0.5, 1.0])
    array([3.5, 3.5])
    """
    if weights is not None:
        vectors = [vector * weight for vector, weight in zip(vectors, weights, strict=True)]
    result = vectors[0].copy()
    for vector in vectors[1:]:
        combine(result, vector, out=result)
    return result
