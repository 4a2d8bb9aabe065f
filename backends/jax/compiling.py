"""``jax.jit`` and scopes.

What a traced function does may depend on the scope that is open, so traces are
kept apart by a number. JAX finds a trace by its settings, among other things;
`trace_apart` writes the number to a setting that xdevice has added to them.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import jax

from xdevice.backends.jax import hardware
from xdevice.backends.jax.private_names import optional
from xdevice.backends.kit.compiling import Trees, over_tensors

Function: TypeAlias = Callable[..., Any]

is_tracing = hardware.is_tracing

_new_setting = optional("jax._src.config:config_ext.Config")
try:
    _traces = _new_setting(
        "xdevice_traces", 0, include_in_jit_key=True, include_in_trace_context=True
    )
except TypeError:  # other versions have no such setting, or take other arguments
    _traces = None


def trace_apart(number: int) -> None:
    if _traces is None:
        jax.clear_caches()  # type: ignore[no-untyped-call]  # JAX has no types for it
    else:
        _traces.set_global(number)


def compilers() -> tuple[str, ...]:
    return ("jit",)


def compiled(fn: Function, compiler: str) -> Function:
    return over_tensors(fn, jax.jit, _TREES)


def _is_tensor(leaf: object) -> bool:
    return isinstance(leaf, jax.Array)


_TREES = Trees(jax.tree_util.tree_flatten, jax.tree_util.tree_unflatten, _is_tensor)
