"""JAX arrays as NumPy arrays, and memory shared with other frameworks."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xdevice.backends.jax.placement import check_alive, described, is_sparse
from xdevice.errors import NotSupportedError, UnknownPlacementError

Array = np.ndarray[Any, Any]


def to_numpy(tensor: Any) -> Array:
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
    return np.array(array)


def export(tensor: Any) -> tuple[Any, bool] | None:
    """Arrays on one device, which never change."""
    if is_sparse(tensor):
        return None
    array = check_alive(tensor)
    if (
        jnp.issubdtype(array.dtype, jax.dtypes.extended)
        or not array.size
        or len(array.sharding.device_set) > 1
    ):
        return None
    return array, False


def adopt(exporter: Any, writable: bool) -> Any:
    return (
        None if writable else jnp.from_dlpack(exporter, copy=False)
    )  # raises unless aligned to 64 bytes
