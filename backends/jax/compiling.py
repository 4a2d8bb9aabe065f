"""``jax.jit`` and scopes."""

from __future__ import annotations

from xdevice.backends.jax.hardware import is_tracing  # noqa: F401  (a function of the capability)


def reuses_traces() -> bool:
    return False  # each default device has a trace of its own
