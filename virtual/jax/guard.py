"""JAX's ``transfer_guard_device_to_host``, which a virtual GPU's arrays would pass.

They are in the host's memory, so JAX reads them without a transfer that its guard would see.
"""

from contextlib import ExitStack

import jax

from xdevice.backends.jax.hardware import ordinal
from xdevice.backends.jax.private_names import guard
from xdevice.backends.kit import buffers
from xdevice.backends.kit.private_names import resolved
from xdevice.contract import Tensor
from xdevice.virtual.jax.private_names import names, replace_name

_VALUE = "jaxlib._jax:ArrayImpl._value"
_TYPES = {"b": "PRED", "f": "F", "i": "S", "u": "U", "c": "C", "V": "BF"}  # XLA's, by NumPy's kind
_blocks = ExitStack()  # never closed


def start() -> None:
    """Let the guard refuse what Python, or NumPy, reads implicitly."""
    if not names.has("JAX's own guard of what is read"):
        return
    array_class, _ = resolved(_VALUE)
    value = names.value(_VALUE)

    def guarded_value(array: Tensor) -> object:
        _check(array)
        return value.__get__(array)

    replace_name(_VALUE, property(guarded_value))
    _blocks.enter_context(buffers.watched(array_class, _check))


def _check(array: Tensor) -> None:
    """Raise the guard's error, in JAX's words."""
    state = guard.thread_local_state()
    level = state.device_to_host or guard.global_state().device_to_host
    levels = guard.TransferGuardLevel
    if level not in (levels.DISALLOW, levels.DISALLOW_EXPLICIT):
        return
    is_allowed = state.explicit_device_get and level == levels.DISALLOW
    device = min(array.sharding.device_set, key=lambda native: native.id)
    is_read = getattr(array, "_npy_value", None) is not None  # NumPy's copy, which JAX keeps
    if is_allowed or is_read or not ordinal(device):
        return
    shape = ",".join(map(str, array.shape))
    bits = "" if array.dtype.kind == "b" else 8 * array.dtype.itemsize
    raise jax.errors.JaxRuntimeError(
        f"INVALID_ARGUMENT: Disallowed device-to-host transfer: shape=({shape}), "
        f"dtype={_TYPES[array.dtype.kind]}{bits}, device={device}"
    )
