"""Adding up vectors in one process, and the dtype in which several processes do so for their mean."""

from collections.abc import Callable, Sequence
from typing import Any

# Numbers of processes for which equal values add up exactly in any order; not
# three, five or eight.
_EXACT = (1, 2, 4)
_WIDER = {"float32": "float64", "complex64": "complex128"}
_NARROW = ("float16", "bfloat16", "float8")


def summed_in(name: str, size: int) -> str:
    """The dtype in which numbers of the named dtype are added up for their mean over ``size`` processes.

    The sum of equal numbers is exact in it, and the sum of narrow ones does
    not overflow. No dtype is wider than float64: the last bit of its mean may
    differ.

    >>> summed_in("float16", 2), summed_in("float32", 2), summed_in("float32", 3)
    ('float32', 'float32', 'float64')
    """
    if name.startswith(_NARROW):
        return "float32"
    return name if size in _EXACT else _WIDER.get(name, name)


def reduced(
    vectors: Sequence[Any], combine: Callable[..., Any], weights: Sequence[float] | None
) -> Any:
    """A new vector: the vectors combined in their order, each multiplied by its weight, if any.

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
