"""JAX's functions under the array API standard's names: ``jax.numpy`` itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax.numpy as jnp

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType


def namespace() -> Mapping[str, Any]:
    made = {name: _signed(name, found) if isinstance(found, jnp.ufunc) else found for name, found in vars(jnp).items()}
    return made | {"can_cast": _can_cast}


def module() -> ModuleType:
    return jnp


def _can_cast(from_: Any, to: Any, /) -> bool:
    return bool(jnp.can_cast(getattr(from_, "dtype", from_), to))  # JAX 0.10.2 takes no arrays


def _signed(name: str, function: jnp.ufunc) -> Callable[..., Any]:
    """The function with the standard's signature: the one of a ufunc of JAX does not name its arguments."""

    def one(x: Any, /) -> Any:
        return function(x)

    def two(x1: Any, x2: Any, /) -> Any:
        return function(x1, x2)

    call = one if function.nin == 1 else two
    call.__name__, call.__doc__ = name, function.__doc__
    return call
