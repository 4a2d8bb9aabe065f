"""``jax.jit`` and scopes."""

from typing import Any

import jax

from xdevice.backends.jax import hardware
from xdevice.backends.jax.private_names import optional

try:  # a setting of our own, which is part of what JAX finds its traces by
    _setting: Any = optional("jax._src.config:config_ext.Config")
    _traces = _setting("xdevice_traces", 0, include_in_jit_key=True, include_in_trace_context=True)
except TypeError:  # other versions
    _traces = None

is_tracing = hardware.is_tracing


def trace_apart(number: int) -> None:
    if _traces is None:
        jax.clear_caches()  # type: ignore[no-untyped-call]  # JAX has left it without types
    else:
        _traces.set_global(number)
