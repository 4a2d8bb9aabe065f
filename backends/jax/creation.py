"""New JAX arrays."""

import os
import threading
from collections.abc import Callable
from functools import lru_cache
from inspect import signature
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.sharding import SingleDeviceSharding

from xdevice.backends.jax.hardware import is_mapping, is_tracing, native, scope
from xdevice.backends.jax.placement import copy, described, is_only_traced, is_sparse
from xdevice.device import Device
from xdevice.errors import ArgumentError, NotSupportedError

_TAKES_DEVICE = "device" in signature(jnp.arange).parameters
_WIDE = frozenset(map(np.dtype, ("int64", "uint64", "float64", "complex128")))
_lock = threading.Lock()
_config: Any = jax.config
# JAX keeps no random state; this is xdevice's
_seed = int.from_bytes(os.urandom(4), "little")
_draws = 0  # since then
_newest: jax.Array | None = None  # the key after the last draw
_keys: dict[
    Any, tuple[int, jax.Array]
] = {}  # by device: after how many draws it drew last, and its key then
_FAR = 16  # draws: splitting a key as often takes longer than sending one


def dtype(name: str) -> Any:
    found = getattr(jnp, name, None)
    return np.dtype(found) if isinstance(found, type(jnp.float32)) else None


def tensor(data: Any, dtype: Any, device: Device | None) -> Any:
    check_width(dtype)
    if is_sparse(data):
        raise NotSupportedError(f"jax makes plain arrays, and this is {described(data)}")
    if isinstance(data, getattr(jax, "Ref", ())):  # new in JAX 0.7
        raise TypeError("a Ref is not an array; give its value, ref[...]")
    if isinstance(data, jax.Array) and not is_only_traced(data):
        copied = copy(data) if dtype is None else copy(data).astype(dtype)
        return copied if device is None else jax.device_put(copied, native(device))
    try:
        array = np.asarray(data)
    except (
        jax.errors.TracerArrayConversionError
    ):  # values of a traced function: only JAX can stack them
        made = jnp.array(data, dtype)  # given a device, it fails under jax.vmap
        return (
            made if device is None else jax.device_put(made, SingleDeviceSharding(native(device)))
        )
    if array.dtype.kind in "OSUMm" or array.dtype.names or array.dtype == jax.dtypes.float0:
        raise TypeError(f"{array.dtype} is not a numeric dtype")
    if array.dtype.kind in "iu" and array.size:
        _check_range(dtype, array.min(), array.max())
    return _bound(_made(jnp.array, array, dtype, device=device), device)


def _of_shape(make: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    def made(shape: tuple[int, ...], dtype: Any, device: Device | None) -> jax.Array:
        check_width(dtype)
        if device is None or is_tracing():
            return _bound(make(shape, dtype, device=_native(device)), device)
        return _made_there(make, shape, dtype, native(device))()

    return made


empty, zeros, ones = map(_of_shape, (jnp.empty, jnp.zeros, jnp.ones))


def full(shape: tuple[int, ...], value: Any, dtype: Any, device: Device | None) -> jax.Array:
    check_width(dtype)
    if isinstance(value, jax.Array):
        value = value.reshape(())  # its gradient flows through
    _check_range(dtype, value)
    if device is not None and isinstance(value, (bool, int, float)) and not is_tracing():
        number = value if dtype is None else np.asarray(value).astype(dtype)  # alone, it is sent
        return _made_there(jnp.full, shape, dtype, native(device))(number)
    return _bound(jnp.full(shape, value, dtype, device=_native(device)), device)


def arange(start: Any, stop: Any, step: Any, dtype: Any, device: Device | None) -> jax.Array:
    check_width(dtype)
    _check_range(dtype, start, stop, step)
    if device is dtype is None and type(start) is type(stop) is int and step == 1:
        return (
            jnp.arange(start, stop) if start else jnp.arange(stop)
        )  # with fewer numbers it is several times as quick
    counts = type(start) is type(stop) is int and (start, step) == (0, 1)
    if device is not None and counts and not is_tracing():
        return _made_there(_counted, (max(stop, 0),), dtype, native(device))()
    if device is not None and not is_tracing():
        with jax.default_device(native(device)):  # not made on another GPU, and then sent
            there: jax.Array = jax.device_put(jnp.arange(start, stop, step, dtype), native(device))
            return there
    return _bound(_made(jnp.arange, start, stop, step, dtype, device=device), device)


def seed(n: int) -> None:
    global _draws, _newest, _seed
    if is_tracing():
        raise NotSupportedError(
            "seed would run once, when jax.jit traces the function, not at each call; call it outside"
        )
    with _lock, jax.ensure_compile_time_eval():
        jax.random.key(n)  # raises what is wrong with n
        _seed, _draws, _newest = n, 0, None
        _keys.clear()


def _random(sample: Callable[..., Any]) -> Callable[..., Any]:
    def drawn(shape: tuple[int, ...], dtype: Any, device: Device | None) -> Any:
        check_width(dtype)
        for is_at_work, same, key in (
            (is_tracing, "jax.jit traces a function would be the same at every call", "a key"),
            (is_mapping, "jax.vmap maps a function would be the same in each lane", "keys"),
        ):
            if is_at_work():
                instead = (
                    f"make them outside and pass them in, or pass {key} in and call jax.random"
                )
                raise NotSupportedError(f"random numbers made while {same}; {instead}")
        wanted = jax.dtypes.canonicalize_dtype(float) if dtype is None else dtype
        if device is None:
            return _draw(sample, shape, wanted, _config.jax_default_device or jax.devices()[0])
        with scope(device):  # computed there, but not committed to it
            return jax.device_put(_draw(sample, shape, wanted, native(device)), native(device))

    return drawn


rand, randn = map(_random, (jax.random.uniform, jax.random.normal))


def _draw(sample: Callable[..., Any], shape: tuple[int, ...], dtype: Any, place: Any) -> Any:
    """Random numbers by the next key of one sequence, which every device follows by itself.

    A device that is few draws behind splits its own key as often; to one that is far behind the
    newest key is sent.
    """
    global _draws, _newest
    with _lock:
        draws, key = _keys.get(place, (-_FAR, _newest))
        if _draws - draws < _FAR:
            for _ in range(_draws - draws):
                key, _ = _split(key)
        else:
            key = jax.random.key(_seed) if _newest is None else _newest
        _newest, drawn = _split(key)
        _draws += 1
        _keys[place] = _draws, _newest
    return _sampled(sample, drawn, shape, np.dtype(dtype))


_split = jax.jit(jax.random.split)
# compiled as a whole: the limits between which it draws would be sent
_sampled = jax.jit(
    lambda sample, key, shape, dtype: sample(key, shape, dtype), static_argnums=(0, 2, 3)
)


def check_width(dtype: Any) -> None:
    """JAX gives 32-bit numbers where 64-bit ones were asked for, with a warning at most."""
    if dtype is None or np.dtype(dtype) not in _WIDE:
        return
    given, wanted = jax.dtypes.canonicalize_dtype(dtype), np.dtype(dtype)
    if given != wanted:
        on = "jax.config.update('jax_enable_x64', True) turns it on"
        raise ArgumentError(f"{wanted} is off in JAX and would become {given}; {on}")


def _check_range(dtype: Any, *numbers: Any) -> None:
    """JAX keeps the low bits of integers that are too large, without an error."""
    target = jax.dtypes.canonicalize_dtype(np.int64 if dtype is None else dtype)
    if not jnp.issubdtype(target, jnp.integer):
        return
    limits: Any = jnp.iinfo(target)  # type: ignore[no-untyped-call]  # JAX has left it without types
    for number in numbers:
        if isinstance(number, (int, np.integer)) and not limits.min <= number <= limits.max:
            raise OverflowError(
                f"{number} does not fit into {target}, from {limits.min} to {limits.max}"
            )


@lru_cache(maxsize=4096)
def _made_there(
    make: Callable[..., jax.Array], shape: tuple[int, ...], dtype: Any, place: Any
) -> Callable[..., jax.Array]:
    """What makes such an array on the device, compiled for it: JAX's own functions make it elsewhere, and send it."""

    def made(*value: Any) -> jax.Array:
        return make(shape, *value, dtype)

    return jax.jit(made, out_shardings=SingleDeviceSharding(place))


def _counted(shape: tuple[int, ...], dtype: Any) -> jax.Array:
    return jnp.arange(shape[0], dtype=dtype)


def _native(device: Device | None) -> Any:
    return None if device is None else native(device)


def _made(make: Callable[..., jax.Array], *arguments: Any, device: Device | None) -> jax.Array:
    """A new array on the device; JAX 0.4.30 does not take one for `array` and `arange`."""
    if _TAKES_DEVICE:
        return make(*arguments, device=_native(device))
    if device is None:
        return make(*arguments)
    with jax.default_device(native(device)):  # made there, and then bound to it
        bound: jax.Array = jax.device_put(make(*arguments), native(device))
        return bound


def _bound(made: jax.Array, device: Device | None) -> jax.Array:
    """The array; while ``jax.jit`` traces, bound to its device: the whole function is computed there, or fails."""
    if device is None or not isinstance(made, Tracer):
        return made
    bound: jax.Array = jax.device_put(made, SingleDeviceSharding(native(device)))
    return bound
