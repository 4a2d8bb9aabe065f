"""New JAX arrays."""

import os
import threading
from collections.abc import Callable
from functools import lru_cache
from inspect import signature
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.sharding import SingleDeviceSharding

from xdevice.backends.jax.hardware import is_mapping, is_tracing, native, scope
from xdevice.backends.jax.placement import copy, described, is_only_traced, is_sparse
from xdevice.contract import NativeDtype
from xdevice.device import Device
from xdevice.errors import ArgumentError, NotSupportedError

Shape: TypeAlias = tuple[int, ...]
Number: TypeAlias = Any
Factory: TypeAlias = Callable[..., jax.Array]
Sampler: TypeAlias = Callable[..., jax.Array]

_TAKES_DEVICE = "device" in signature(jnp.arange).parameters
_WIDE = frozenset(map(np.dtype, ("int64", "uint64", "float64", "complex128")))
_lock = threading.Lock()
_config: Any = jax.config
# JAX keeps no random state; this is xdevice's
_seed = int.from_bytes(os.urandom(4), "little")
_draws = 0  # since then
_newest_key: jax.Array | None = None  # the key after the last draw
# the number of draws after which a device drew last, and its key then
_keys: dict[jax.Device, tuple[int, jax.Array]] = {}
_FAR = 16  # draws: splitting a key as often takes longer than sending one


def dtype(name: str) -> NativeDtype | None:
    scalar_type = getattr(jnp, name, None)
    return np.dtype(scalar_type) if isinstance(scalar_type, type(jnp.float32)) else None


def tensor(data: Any, dtype: NativeDtype | None, device: Device | None) -> jax.Array:
    check_width(dtype)
    if is_sparse(data):
        raise NotSupportedError(f"jax makes plain arrays, and this is {described(data)}")
    if isinstance(data, getattr(jax, "Ref", ())):  # new in JAX 0.7
        raise TypeError("a Ref is not an array; give its value, ref[...]")
    if isinstance(data, jax.Array) and not is_only_traced(data):
        copied: jax.Array = copy(data)
        if dtype is not None:
            copied = copied.astype(dtype)
        return copied if device is None else _put(copied, native(device))
    try:
        array = np.asarray(data)
    except jax.errors.TracerArrayConversionError:
        # values of a traced function, which only JAX can stack; with a device, it fails under vmap
        stacked = jnp.array(data, dtype)
        if device is None:
            return stacked
        return _put(stacked, SingleDeviceSharding(native(device)))
    if array.dtype.kind in "OSUMm" or array.dtype.names or array.dtype == jax.dtypes.float0:
        raise TypeError(f"{array.dtype} is not a numeric dtype")
    if array.dtype.kind in "iu" and array.size:
        _check_range(dtype, array.min(), array.max())
    if is_tracing():
        return _bound(_call(jnp.array, array, dtype, device=device), device)
    # jnp.array sends the numbers to the default device, and compiles a program that converts them
    numbers = np.array(array, dtype)  # a copy, since JAX may keep its memory
    new_array: jax.Array = jax.device_put(numbers, _native(device))
    return new_array


def _of_shape(factory: Factory) -> Factory:
    def create(shape: Shape, dtype: NativeDtype | None, device: Device | None) -> jax.Array:
        check_width(dtype)
        if device is None or is_tracing():
            return _bound(factory(shape, dtype, device=_native(device)), device)
        return _compiled_for(native(device), factory, shape, dtype)()

    return create


empty, zeros, ones = map(_of_shape, (jnp.empty, jnp.zeros, jnp.ones))


def full(
    shape: Shape, value: Number, dtype: NativeDtype | None, device: Device | None
) -> jax.Array:
    check_width(dtype)
    if isinstance(value, jax.Array):
        value = value.reshape(())  # its gradient flows through
    _check_range(dtype, value)
    if device is not None and isinstance(value, (bool, int, float)) and not is_tracing():
        number = value if dtype is None else np.asarray(value).astype(dtype)
        # only the number is sent to the device
        return _compiled_for(native(device), jnp.full, shape, dtype)(number)
    return _bound(jnp.full(shape, value, dtype, device=_native(device)), device)


def arange(
    start: Number, stop: Number, step: Number, dtype: NativeDtype | None, device: Device | None
) -> jax.Array:
    check_width(dtype)
    _check_range(dtype, start, stop, step)
    are_integers = type(start) is int and type(stop) is int
    if device is None and dtype is None and are_integers and step == 1:
        # with fewer arguments it is several times as fast
        return jnp.arange(start, stop) if start else jnp.arange(stop)
    if device is None or is_tracing():
        return _bound(_call(jnp.arange, start, stop, step, dtype, device=device), device)
    native_device = native(device)
    if are_integers and (start, step) == (0, 1):
        return _compiled_for(native_device, _counted, (max(stop, 0),), dtype)()
    with jax.default_device(native_device):  # not created on another GPU, and then sent
        return _put(jnp.arange(start, stop, step, dtype), native_device)


def seed(n: int) -> None:
    global _draws, _newest_key, _seed
    if is_tracing():
        raise NotSupportedError(
            "seed would run once, when jax.jit traces the function, not at each call; call it "
            "outside"
        )
    with _lock:  # a key is made when it is needed: the program may still choose its devices
        _seed = n
        _draws = 0
        _newest_key = None
        _keys.clear()


def _random(sampler: Sampler) -> Factory:
    def create(shape: Shape, dtype: NativeDtype | None, device: Device | None) -> jax.Array:
        check_width(dtype)
        _check_not_transforming()
        if dtype is None:
            dtype = jax.dtypes.canonicalize_dtype(float)
        if device is None:
            return _draw(sampler, shape, dtype, _config.jax_default_device or jax.devices()[0])
        native_device = native(device)
        with scope(device):  # computed on the device, but not committed to it
            return _put(_draw(sampler, shape, dtype, native_device), native_device)

    return create


rand, randn = map(_random, (jax.random.uniform, jax.random.normal))


def _check_not_transforming() -> None:
    """Raise an error in a function that JAX traces or maps: its numbers would be drawn once."""
    if is_tracing():
        repetition = "jax.jit traces a function would be the same at every call"
        key = "a key"
    elif is_mapping():
        repetition = "jax.vmap maps a function would be the same in each lane"
        key = "keys"
    else:
        return
    raise NotSupportedError(
        f"random numbers made while {repetition}; make them outside and pass them in, or pass "
        f"{key} in and call jax.random"
    )


def _draw(
    sampler: Sampler, shape: Shape, dtype: NativeDtype, native_device: jax.Device
) -> jax.Array:
    """Random numbers by the next key of one sequence, which every device follows by itself.

    A device that is few draws behind splits its own key as often; to one that is far behind the
    newest key is sent.
    """
    global _draws, _newest_key
    with _lock:
        draws, key = _keys.get(native_device, (-_FAR, _newest_key))
        if _draws - draws < _FAR:
            for _ in range(_draws - draws):
                key, _ = _split(key)
        elif _newest_key is None:
            key = jax.random.key(_seed)
        else:
            key = _newest_key
        _newest_key, key_to_use = _split(key)
        _draws += 1
        _keys[native_device] = _draws, _newest_key
    numbers: jax.Array = _sampled(sampler, key_to_use, shape, np.dtype(dtype))
    return numbers


_split = jax.jit(jax.random.split)
# compiled as a whole: the limits between which it draws would be sent
_sampled = jax.jit(
    lambda sampler, key, shape, dtype: sampler(key, shape, dtype), static_argnums=(0, 2, 3)
)


def check_width(dtype: NativeDtype | None) -> None:
    """Raise an error for 64-bit numbers if they are off; JAX would give 32-bit ones and warn."""
    if dtype is None or np.dtype(dtype) not in _WIDE:
        return
    requested_dtype = np.dtype(dtype)
    jax_dtype = jax.dtypes.canonicalize_dtype(dtype)
    if jax_dtype != requested_dtype:
        raise ArgumentError(
            f"{requested_dtype} is off in JAX and would become {jax_dtype}; "
            "jax.config.update('jax_enable_x64', True) turns it on"
        )


def _check_range(dtype: NativeDtype | None, *numbers: Number) -> None:
    """Raise an error for integers that are too large; JAX would keep their low bits."""
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
def _compiled_for(
    native_device: jax.Device, factory: Factory, shape: Shape, dtype: NativeDtype | None
) -> Factory:
    """The factory for such arrays, compiled for the device.

    JAX's own functions create the array on the default device, and send it.
    """

    def create(*value: Number) -> jax.Array:
        return factory(shape, *value, dtype)

    return jax.jit(create, out_shardings=SingleDeviceSharding(native_device))


def _counted(shape: Shape, dtype: NativeDtype | None) -> jax.Array:
    return jnp.arange(shape[0], dtype=dtype)


def _put(array: jax.Array, place: jax.Device | SingleDeviceSharding) -> jax.Array:
    """The array, committed to the device."""
    committed: jax.Array = jax.device_put(array, place)
    return committed


def _native(device: Device | None) -> jax.Device | None:
    return None if device is None else native(device)


def _call(factory: Factory, *arguments: Any, device: Device | None) -> jax.Array:
    """A new array on the device; `array` and `arange` of JAX 0.4.30 do not take a device."""
    if _TAKES_DEVICE:
        return factory(*arguments, device=_native(device))
    if device is None:
        return factory(*arguments)
    native_device = native(device)
    with jax.default_device(native_device):
        return _put(factory(*arguments), native_device)


def _bound(array: jax.Array, device: Device | None) -> jax.Array:
    """The array; while ``jax.jit`` traces, bound to its device.

    The whole function is then computed on that device, or fails.
    """
    if device is None or not isinstance(array, Tracer):
        return array
    return _put(array, SingleDeviceSharding(native(device)))
