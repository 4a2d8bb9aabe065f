"""``jax.jit`` and scopes.

What a traced function does may depend on the scope that is open, so traces are
kept apart by a number. JAX finds a trace by its settings, among other things;
`trace_apart` writes the number to a setting that xdevice has added to them.
"""

import jax

from xdevice.backends.jax import hardware
from xdevice.backends.jax.private_names import optional

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
