"""JAX's functions under the array API standard's names: ``jax.numpy`` itself."""

from collections.abc import Callable, Mapping
from functools import partial, wraps
from types import ModuleType
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax.sharding import Sharding

from xdevice.backends.jax.creation import check_width
from xdevice.backends.kit.standard import elementwise
from xdevice.contract import Extension, NativeDtype

Function: TypeAlias = Callable[..., Any]
ArrayOrDtype: TypeAlias = Any

linalg = Extension(lambda: _all_beside(vars(jnp.linalg)), jnp.linalg)
fft = Extension(lambda: _all_beside(vars(jnp.fft)), jnp.fft)


def namespace() -> Mapping[str, object]:
    contents = dict(vars(jnp))
    for name, value in vars(jnp).items():
        if isinstance(value, jnp.ufunc):
            contents[name] = elementwise(value, name)
    contents |= {"all": _of_truth(jnp.all), "any": _of_truth(jnp.any)}
    return _all_beside(contents) | {"astype": _astype, "can_cast": _can_cast}


def _all_beside(contents: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _beside(value) if callable(value) and not isinstance(value, type) else value
        for name, value in contents.items()
    }


def _beside(function: Function) -> Function:
    """The function, with its results on its first array's device, and no 64-bit dtype in silence.

    A result that depends on no number of its operands JAX makes on the default device,
    uncommitted: ``isfinite`` of integers, ``imag`` of real numbers, ``isin`` and ``hypot`` of empty
    arrays (JAX 0.10.2). Of 64-bit dtypes that are off, JAX would warn and return 32-bit numbers.
    """

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if "dtype" in kwargs:
            check_width(kwargs["dtype"])
        result = function(*args, **kwargs)
        # the public attribute raises an error for a tracer, which has no private one
        if getattr(result, "_committed", False) or not args:
            return result
        if getattr(args[0], "_committed", False) and len(args[0].sharding.device_set) == 1:
            return jax.tree.map(partial(_moved, args[0].sharding), result)
        return result

    return call


def _of_truth(reduce: Function) -> Function:
    """`jnp.any` or `jnp.all`, which take the truth of a complex number's real part (JAX 0.10.2)."""

    @wraps(reduce)
    def call(x: Any, /, *args: Any, **kwargs: Any) -> Any:
        truth = x != 0 if jnp.iscomplexobj(x) else x
        return reduce(truth, *args, **kwargs)

    return call


def _moved(sharding: Sharding, x: Any) -> Any:
    return x if getattr(x, "_committed", True) else jax.device_put(x, sharding)


def module() -> ModuleType:
    return jnp


def _astype(x: jax.Array, dtype: NativeDtype, /, *, copy: bool = True) -> jax.Array:
    check_width(dtype)
    # an array of another dtype has memory of its own already
    needs_copy = copy and x.dtype == dtype
    return jnp.astype(x, dtype, copy=needs_copy)


def _can_cast(from_: ArrayOrDtype, to: NativeDtype, /) -> bool:
    # JAX 0.10.2 takes no arrays
    from_dtype: NativeDtype = getattr(from_, "dtype", from_)
    return bool(jnp.can_cast(from_dtype, to))
