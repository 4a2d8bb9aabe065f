"""JAX's functions under the array API standard's names: ``jax.numpy`` itself."""

from collections.abc import Callable, Mapping
from functools import wraps
from types import ModuleType
from typing import Any

import jax.numpy as jnp

from xdevice.backends.jax.creation import check_width
from xdevice.contract import Extension
from xdevice.kit.standard import elementwise

linalg = Extension(lambda: vars(jnp.linalg), jnp.linalg)
fft = Extension(lambda: vars(jnp.fft), jnp.fft)

_TAKE_DTYPE = [
    "empty_like",
    "full_like",
    "ones_like",
    "zeros_like",
    "cumulative_prod",
    "cumulative_sum",
    "prod",
    "sum",
]


def namespace() -> Mapping[str, Any]:
    made = {
        name: elementwise(x, name) if isinstance(x, jnp.ufunc) else x
        for name, x in vars(jnp).items()
    }
    made |= {name: _of_width(made[name]) for name in _TAKE_DTYPE if name in made}
    return made | {"astype": _astype, "can_cast": _can_cast}


def _of_width(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which refuses 64-bit dtypes while JAX would make 32-bit numbers of them with a warning."""

    @wraps(function)
    def call(*args: Any, dtype: Any = None, **kwargs: Any) -> Any:
        check_width(dtype)
        return function(*args, dtype=dtype, **kwargs)

    return call


def module() -> ModuleType:
    return jnp


def _astype(x: Any, dtype: Any, /, *, copy: bool = True) -> Any:
    check_width(dtype)
    return jnp.astype(
        x, dtype, copy=copy and x.dtype == dtype
    )  # another dtype is new memory already


def _can_cast(from_: Any, to: Any, /) -> bool:
    return bool(jnp.can_cast(getattr(from_, "dtype", from_), to))  # JAX 0.10.2 takes no arrays
