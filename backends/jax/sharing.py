"""The memory of JAX arrays, and arrays on the memory of others."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from xdevice.backends.jax.placement import check_alive


def export(tensor: Any) -> tuple[Any, bool] | None:
    """Arrays on one device, which never change."""
    array = check_alive(tensor)
    if jnp.issubdtype(array.dtype, jax.dtypes.extended) or not array.size or len(array.sharding.device_set) > 1:
        return None
    return array, False


def adopt(exporter: Any, writable: bool) -> Any:
    return None if writable else jnp.from_dlpack(exporter, copy=False)  # raises unless aligned to 64 bytes
