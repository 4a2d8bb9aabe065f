"""Adding up vectors for frameworks whose functions write into an array that they are given, as NumPy's do."""

from collections.abc import Callable, Sequence
from typing import Any


def reduced(vectors: Sequence[Any], combine: Callable[..., Any], weights: Sequence[float] | None) -> Any:
    """A new vector: the vectors combined in their order, each multiplied by its weight if weights are given.

    >>> import numpy as np
    >>> reduced([np.ones(2), np.full(2, 3.0)], np.add, [0.5, 1.0])
    array([3.5, 3.5])
    """
    first, *others = vectors if weights is None else [v * w for v, w in zip(vectors, weights, strict=True)]
    found = first.copy()
    for vector in others:
        combine(found, vector, out=found)
    return found
