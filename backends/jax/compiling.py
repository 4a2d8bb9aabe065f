"""``jax.jit``."""

from collections.abc import Callable
from typing import Any, TypeAlias

import jax

from xdevice.backends.jax import hardware
from xdevice.backends.kit.compiling import Trees, over_tensors

Function: TypeAlias = Callable[..., Any]

is_tracing = hardware.is_tracing


def compilers() -> tuple[str, ...]:
    return ("jit",)


def compiled(fn: Function, compiler: str) -> Function:
    return over_tensors(fn, jax.jit, _TREES)


def _is_tensor(leaf: object) -> bool:
    return isinstance(leaf, jax.Array)


_TREES = Trees(jax.tree_util.tree_flatten, jax.tree_util.tree_unflatten, _is_tensor)
