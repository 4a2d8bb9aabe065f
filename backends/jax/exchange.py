"""JAX arrays as NumPy arrays, and memory shared with other frameworks."""

from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from xdevice.backends.jax.placement import check_alive, described, is_sparse
from xdevice.contract import Tensor
from xdevice.errors import NotSupportedError, UnknownPlacementError

Exporter: TypeAlias = Any  # an object with ``__dlpack__``

_plain_classes: set[type] = set()  # those of arrays, without tracers, random keys and variables


def to_numpy(tensor: Tensor) -> npt.NDArray[Any]:
    if type(tensor) in _plain_classes:
        try:
            return np.array(tensor)
        except (RuntimeError, TypeError):
            pass  # it has no values here, which the following questions explain
    if is_sparse(tensor):
        raise NotSupportedError(f"NumPy cannot hold {described(tensor)}")
    array = check_alive(tensor)
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        raise NotSupportedError(
            f"NumPy has no {array.dtype}; convert it first with jax.random.key_data"
        )
    if not (array.is_fully_addressable or array.is_fully_replicated):
        hint = "gather it, or read its addressable_shards"
        raise UnknownPlacementError(
            f"an array of {array.sharding} is spread over several processes; {hint}"
        )
    if array is tensor:
        _plain_classes.add(type(array))
    return np.array(array)


def export(tensor: Tensor) -> tuple[Exporter, bool] | None:
    """Only arrays on one device; they never change."""
    if is_sparse(tensor):
        return None
    array = check_alive(tensor)
    is_extended = jnp.issubdtype(array.dtype, jax.dtypes.extended)
    if is_extended or not array.size or len(array.sharding.device_set) > 1:
        return None
    return array, False


def adopt(exporter: Exporter, writable: bool) -> jax.Array | None:
    if writable:
        return None
    return jnp.from_dlpack(exporter, copy=False)  # raises unless aligned to 64 bytes
