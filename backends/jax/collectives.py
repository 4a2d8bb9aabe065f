"""Arrays in parts, in one piece and added up, by JAX.

Each is one compiled computation, and queued: nothing here waits for a value.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from xdevice.backends.jax.placement import concrete, described, is_sparse
from xdevice.errors import ArgumentTypeError, NotSupportedError

# by JAX's classes: NumPy calls bfloat16 and the 8-bit ones void
_KINDS = {
    "f": jnp.floating,
    "u": jnp.unsignedinteger,
    "i": jnp.signedinteger,
    "b": jnp.bool_,
    "c": jnp.complexfloating,
}
_ELEMENTWISE = {"sum": jnp.add, "max": jnp.maximum, "min": jnp.minimum}


def kind(tensor: Any) -> str:
    if is_sparse(tensor):
        raise ArgumentTypeError(f"a plain array is needed, and this is {described(tensor)}")
    return next(
        (letter for letter, kind in _KINDS.items() if jnp.issubdtype(tensor.dtype, kind)), "O"
    )


def split(tensor: Any, sizes: Sequence[int]) -> list[Any]:
    if is_sparse(tensor):
        raise NotSupportedError(f"jax cannot split {described(tensor)}")
    with _beside(tensor):
        tensor = tensor if isinstance(tensor, jax.Array) else concrete(tensor)
        return list(jnp.split(tensor, np.cumsum(sizes[:-1])))


def leaf(tensor: Any) -> Any:
    _check_untraced(tensor)
    return tensor


def pack(tensors: Sequence[Any]) -> Any:
    for tensor in tensors:
        _check_untraced(tensor)
    with _beside(tensors[0]):
        return _packed([concrete(tensor) for tensor in tensors])


def unpack(vector: Any, like: Sequence[Any]) -> list[Any]:
    with _beside(vector):
        return list(_unpacked(vector, tuple(tensor.shape for tensor in like)))


def reduce(vectors: Sequence[Any], op: str, weights: Sequence[float] | None) -> Any:
    with _beside(vectors[0]):
        return _reduced(list(vectors), op, None if weights is None else list(weights))


def threads() -> Callable[[], AbstractContextManager[Any]] | None:
    return None  # one thread queues the work of all devices


def _check_untraced(tensor: Any) -> None:
    if isinstance(tensor, Tracer):
        hint = "make them outside the function that is differentiated"
        raise NotSupportedError(
            f"jax.grad does not see through replicas and reductions, and would give zeros; {hint}"
        )


def _beside(tensor: Any) -> Any:
    """Compute where the array is, even one that JAX may take to the default device."""
    (device,) = concrete(tensor).devices()
    return jax.default_device(device)


# A compiled function hands on an argument that it returns unchanged, so what may be one is copied.


@jax.jit
def _packed(tensors: list[Any]) -> Any:
    flat = [jnp.ravel(tensor) for tensor in tensors]
    return jnp.concatenate(flat) if len(flat) > 1 else jnp.copy(flat[0])


@partial(jax.jit, static_argnums=1)
def _unpacked(vector: Any, shapes: tuple[tuple[int, ...], ...]) -> list[Any]:
    parts = jnp.split(vector, np.cumsum([prod(shape) for shape in shapes])[:-1])
    return [jnp.copy(part).reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


@partial(jax.jit, static_argnums=1)
def _reduced(vectors: list[Any], op: str, weights: list[Any] | None) -> Any:
    if weights is not None:
        vectors = [v * jnp.asarray(w, v.dtype) for v, w in zip(vectors, weights, strict=True)]
    found = vectors[0]
    for vector in vectors[1:]:
        found = _ELEMENTWISE[op](found, vector)
    return jnp.copy(found)
