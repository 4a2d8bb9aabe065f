"""What copies are for: the function of JAX, or of xdevice, that the program has called."""

import sys
from types import FrameType
from typing import NamedTuple

from xdevice.backends.jax.private_names import guard
from xdevice.contract import Kind

_LIBRARIES = {"jax", "jaxlib", "numpy", "xdevice", "contextlib", "functools"}
# Modules whose functions call the function that the program has called, or report its copies.
_WRAPPERS = (
    "contextlib",
    "functools",
    "jax._src.profiler",
    "jax._src.traceback_util",
    "jax._src.util",
    "xdevice.backends.jax.purposes",
    "xdevice.backends.jax.transfers",
    "xdevice.backends.kit.buffers",
)
_FACTORIES = {"jax._src.numpy.array_constructors", "jax._src.numpy.array_creation"}
_METHODS = "jax._src.numpy.array_methods"
_UPDATES = {  # of x.at[i]
    "set",
    "add",
    "subtract",
    "multiply",
    "mul",
    "divide",
    "power",
    "min",
    "max",
    "apply",
    "get",
}


class Purpose(NamedTuple):
    """Why values are copied, and the name of the operation for the report."""

    kind: Kind
    operation: str


class _CalledFunction(NamedTuple):
    """A function of JAX or of xdevice; both names are empty if it is written in C."""

    module: str
    name: str


def of_reading() -> Purpose:
    """What the program reads values for, now that JAX or NumPy reads them."""
    module, name = _called_function()
    operation = name.strip("_") or "asarray"
    if module.startswith("xdevice.") or name == "copy_to_host_async":
        return Purpose("copy", operation)
    if guard.thread_local_state().explicit_device_get:
        return Purpose("copy", operation)
    if module == "jax._src.pjit":
        # an array that the function closes over becomes a constant of its code
        return Purpose("operand", "jit")
    is_item = module == _METHODS and name == "_item"
    is_function = module.startswith("jax._src.numpy.") and not is_item
    if name == "__getitem__" or is_function:
        return Purpose("size", operation)
    return Purpose("number", operation)


def of_sending() -> Purpose:
    """What the program sends values for, now that JAX sends them."""
    module, name = _called_function()
    operation = name.removeprefix("_operator_").strip("_") or "device_put"
    if module in ("jax._src.pjit", "jax._src.interpreters.pxla"):
        operation = "jit"
    is_factory = module in _FACTORIES or module.startswith("xdevice.")
    if is_factory or guard.thread_local_state().explicit_device_put:
        return Purpose("copy", operation)
    if name == "__getitem__" or (module == _METHODS and name in _UPDATES):
        return Purpose("index", operation)
    if module == "jax._src.api":
        return Purpose("gradient", operation)
    return Purpose("operand", operation)


def _called_function() -> _CalledFunction:
    """The outermost function of a library on this thread's stack, above the program's own."""
    function = _CalledFunction("", "")
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        is_library = module.partition(".")[0] in _LIBRARIES
        if not is_library or module.startswith("xdevice.testing"):
            break
        if not module.startswith(_WRAPPERS):
            function = _CalledFunction(module, frame.f_code.co_name)
        frame = frame.f_back
    return function
