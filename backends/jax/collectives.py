"""Splitting, packing and reducing JAX arrays.

Each function is one compiled computation, which JAX queues: none of them waits
for a value.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from math import prod

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from xdevice.backends.jax.placement import concrete, described, is_sparse
from xdevice.contract import Tensor, Vector
from xdevice.errors import ArgumentTypeError, NotSupportedError

# JAX's classes of dtypes: NumPy gives bfloat16 and floats of 8 bits the kind void
_CLASSES = {
    "f": jnp.floating,
    "u": jnp.unsignedinteger,
    "i": jnp.signedinteger,
    "b": jnp.bool_,
    "c": jnp.complexfloating,
}
_ELEMENTWISE = {"sum": jnp.add, "max": jnp.maximum, "min": jnp.minimum}


def kind(tensor: Tensor) -> str:
    if is_sparse(tensor):
        raise ArgumentTypeError(f"a plain array is needed, and this is {described(tensor)}")
    for letter, dtype_class in _CLASSES.items():
        if jnp.issubdtype(tensor.dtype, dtype_class):
            return letter
    return "O"


def split(tensor: Tensor, sizes: Sequence[int]) -> list[jax.Array]:
    if is_sparse(tensor):
        raise NotSupportedError(f"jax cannot split {described(tensor)}")
    with _on_device_of(tensor):
        array = tensor if isinstance(tensor, jax.Array) else concrete(tensor)
        return list(jnp.split(array, np.cumsum(sizes[:-1])))


def leaf(tensor: Tensor) -> Tensor:
    _check_untraced(tensor)
    return tensor


def pack(tensors: Sequence[Tensor]) -> Vector:
    for tensor in tensors:
        _check_untraced(tensor)
    with _on_device_of(tensors[0]):
        return _packed([concrete(tensor) for tensor in tensors])


def unpack(vector: jax.Array, like: Sequence[Tensor]) -> list[jax.Array]:
    shapes = tuple(tensor.shape for tensor in like)
    with _on_device_of(vector):
        return list(_unpacked(vector, shapes))


def reduce(vectors: Sequence[jax.Array], op: str, weights: Sequence[float] | None) -> Vector:
    weights = None if weights is None else list(weights)
    with _on_device_of(vectors[0]):
        return _reduced(list(vectors), op, weights)


def threads() -> Callable[[], AbstractContextManager[object]] | None:
    return None  # one thread queues the work of all devices


def _check_untraced(tensor: Tensor) -> None:
    if isinstance(tensor, Tracer):
        hint = "make them outside the function that is differentiated"
        raise NotSupportedError(
            f"jax.grad does not see through replicas and reductions, and would give zeros; {hint}"
        )


def _on_device_of(tensor: Tensor) -> AbstractContextManager[object]:
    """A block that computes on the array's device.

    JAX would compute on the default device if the array is uncommitted.
    """
    (device,) = concrete(tensor).devices()
    block: AbstractContextManager[object] = jax.default_device(device)
    return block


# A compiled function that returns an argument unchanged returns the argument's own
# memory. The functions below copy where that could happen.


@jax.jit
def _packed(arrays: list[jax.Array]) -> jax.Array:
    vectors = [jnp.ravel(array) for array in arrays]
    if len(vectors) == 1:
        return jnp.copy(vectors[0])
    return jnp.concatenate(vectors)


@partial(jax.jit, static_argnums=1)
def _unpacked(vector: jax.Array, shapes: tuple[tuple[int, ...], ...]) -> list[jax.Array]:
    parts = jnp.split(vector, np.cumsum([prod(shape) for shape in shapes])[:-1])
    return [jnp.copy(part).reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


@partial(jax.jit, static_argnums=1)
def _reduced(vectors: list[jax.Array], op: str, weights: list[float] | None) -> jax.Array:
    if weights is not None:
        vectors = [v * jnp.asarray(w, v.dtype) for v, w in zip(vectors, weights, strict=True)]
    combine = _ELEMENTWISE[op]
    result = vectors[0]
    for vector in vectors[1:]:
        result = combine(result, vector)
    return jnp.copy(result)
