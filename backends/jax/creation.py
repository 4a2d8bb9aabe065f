"""New JAX arrays."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from xdevice.backends.jax.hardware import native, scope
from xdevice.backends.jax.placement import copy

if TYPE_CHECKING:
    from collections.abc import Callable

    from xdevice.device import Device

_lock = threading.Lock()
_key: jax.Array | None = None  # JAX has no random state of its own, so here it is


def dtype(name: str) -> Any:
    found = getattr(jnp, name, None)
    return np.dtype(found) if isinstance(found, type(jnp.float32)) else None


def tensor(data: Any, dtype: Any, device: Device | None) -> Any:
    _check_width(dtype)
    if isinstance(data, jax.Array):
        copied = copy(data) if dtype is None else copy(data).astype(dtype)
        return copied if device is None else jax.device_put(copied, native(device))
    try:
        array = np.asarray(data)
    except jax.errors.TracerArrayConversionError:  # numbers of a traced function: only JAX can stack them
        return jnp.array(data, dtype, device=_native(device))
    if array.dtype.kind in "OSUMm":
        raise TypeError(f"{array.dtype} is no type of number")
    if array.dtype.kind in "iu" and array.size:
        _check_range(dtype, array.min(), array.max())
    return jnp.array(array, dtype, device=_native(device))


def empty(shape: tuple[int, ...], dtype: Any, device: Device | None) -> jax.Array:
    _check_width(dtype)
    return jnp.empty(shape, dtype, device=_native(device))


def zeros(shape: tuple[int, ...], dtype: Any, device: Device | None) -> jax.Array:
    _check_width(dtype)
    return jnp.zeros(shape, dtype, device=_native(device))


def ones(shape: tuple[int, ...], dtype: Any, device: Device | None) -> jax.Array:
    _check_width(dtype)
    return jnp.ones(shape, dtype, device=_native(device))


def full(shape: tuple[int, ...], value: Any, dtype: Any, device: Device | None) -> jax.Array:
    _check_width(dtype)
    _check_range(dtype, value)
    return jnp.full(shape, value, dtype, device=_native(device))


def arange(start: Any, stop: Any, step: Any, dtype: Any, device: Device | None) -> jax.Array:
    _check_width(dtype)
    _check_range(dtype, start, stop, step)
    return jnp.arange(start, stop, step, dtype, device=_native(device))


def rand(shape: tuple[int, ...], dtype: Any, device: Device | None) -> Any:
    return _draw(jax.random.uniform, shape, dtype, device)


def randn(shape: tuple[int, ...], dtype: Any, device: Device | None) -> Any:
    return _draw(jax.random.normal, shape, dtype, device)


def seed(n: int) -> None:
    global _key
    with _lock, jax.ensure_compile_time_eval():
        _key = jax.random.key(n)


def _draw(sample: Callable[..., Any], shape: tuple[int, ...], dtype: Any, device: Device | None) -> Any:
    _check_width(dtype)
    options = {} if dtype is None else {"dtype": dtype}
    if device is None:
        return sample(_next_key(), shape, **options)
    with scope(device):  # where it is computed; what is computed there is not yet bound to stay there
        return jax.device_put(sample(_next_key(), shape, **options), native(device))


def _next_key() -> Any:
    global _key
    # never traced: a key made inside jax.jit must not be kept beyond it
    with _lock, jax.ensure_compile_time_eval():
        if _key is None:
            _key = jax.random.key(int.from_bytes(os.urandom(4), "little"))
        _key, drawn = jax.random.split(_key)
        return drawn


def _check_width(dtype: Any) -> None:
    """JAX makes 32-bit numbers of 64-bit ones that were asked for, with a warning at most."""
    if dtype is not None and jax.dtypes.canonicalize_dtype(dtype) != np.dtype(dtype):
        raise ValueError(
            f"{np.dtype(dtype)} is off in JAX and would become {jax.dtypes.canonicalize_dtype(dtype)}; "
            f"jax.config.update('jax_enable_x64', True) turns it on"
        )


def _check_range(dtype: Any, *numbers: Any) -> None:
    """JAX keeps the low bits of integers that are too large, in silence."""
    target = jax.dtypes.canonicalize_dtype(np.int64 if dtype is None else dtype)
    if not jnp.issubdtype(target, jnp.integer):
        return
    limits: Any = jnp.iinfo(target)  # type: ignore[no-untyped-call]  # JAX has left it without types
    for number in numbers:
        if isinstance(number, (int, np.integer)) and not limits.min <= number <= limits.max:
            raise OverflowError(f"{number} does not fit into {target}, from {limits.min} to {limits.max}")


def _native(device: Device | None) -> Any:
    return None if device is None else native(device)
