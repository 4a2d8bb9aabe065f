"""``jax.jit`` and scopes."""

from xdevice.backends.jax import hardware


def is_tracing() -> bool:
    return hardware.is_tracing()


def reuses_traces() -> bool:
    return False  # each default device has a trace of its own
