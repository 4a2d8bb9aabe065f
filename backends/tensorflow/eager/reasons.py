"""What a copy is for: which functions of TensorFlow, Keras and ours are between the program's line and it."""

from collections.abc import Iterator
from inspect import currentframe
from types import FrameType

from xdevice.backends.tensorflow.eager.operations import HOST, Operand
from xdevice.contract import Kind
from xdevice.device import Device

Calls = list[tuple[str, str]]
"""The module and the name of each function of a library that is running, the innermost first."""

_LIBRARIES = frozenset({"contextlib", "functools", "keras", "numpy", "tensorflow", "tf_keras", "xdevice"})
_HOOKS = ("xdevice.backends.tensorflow.eager", "xdevice.backends.tensorflow.transfers")
_BETWEEN = frozenset({"error_handler", "new_func", "op_dispatch_handler", "wrapped", "wrapper"})  # decorators'
_MAKES = frozenset({"cast", "constant", "convert_to_tensor_v2_with_dispatch", "identity", "identity_n", "read_value"})
"""Functions of TensorFlow by which a program asks for a tensor, and so for its copy."""
_FEEDS = ("tensorflow.python.data.", "tensorflow.python.ops.variables")
_COMPUTES = ("keras.src.ops", "xdevice.backends.tensorflow.maths", "xdevice.kit.standard")
_LOOPS = ("keras.src.backend.tensorflow.trainer", "tensorflow.python.data.", "tf_keras.src.engine.")


def frames() -> Iterator[FrameType]:
    """The frames of libraries, the innermost first and our hooks' left out, to the program's own."""
    frame = currentframe()
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.partition(".")[0] not in _LIBRARIES or module.startswith("xdevice.testing"):
            return
        if not module.startswith(_HOOKS):
            yield frame
        frame = frame.f_back


def calls_of_libraries() -> Calls:
    """The functions of libraries that are running."""
    return [(frame.f_globals["__name__"], frame.f_code.co_name) for frame in frames()]


def _outermost(calls: Calls) -> tuple[str, str]:
    """The function that the program called, without its decorators."""
    return next((call for call in reversed(calls) if call[1] not in _BETWEEN), ("", ""))


def is_backward(calls: Calls) -> bool:
    """Whether a tape computes gradients."""
    return any(name == "imperative_grad" for _, name in calls)


def is_asked(calls: Calls) -> bool:
    """Whether the program asks xdevice for a copy, and not for computing."""
    return _outermost(calls)[0].startswith("xdevice.") and not any(m.startswith(_COMPUTES) for m, _ in calls)


def is_between_batches(calls: Calls) -> bool:
    """Whether a boolean that is read says that there is another batch, which is known on the host."""
    return any(module.startswith(_LOOPS) for module, _ in calls)


def is_long_way(calls: Calls) -> bool:
    """Whether an operation makes tensors of its arguments, which it could not take as they are."""
    return any("_eager_fallback" in name for _, name in calls)


def kind_of_made(calls: Calls) -> Kind:
    """Of the copy of an array or a list of which a tensor is made."""
    module, name = _outermost(calls)
    feeds = module.startswith(_FEEDS) or (
        module.startswith(("keras.", "tf_keras.")) and not module.startswith(_COMPUTES)
    )
    if is_backward(calls):
        return "gradient"
    return "copy" if name in _MAKES or feeds or is_asked(calls) else "index"


def kind_of_operand(operation: str, operand: Operand, target: Device, calls: Calls) -> Kind:
    """Of the copy of an operand to where the operation runs."""
    if is_backward(calls):
        return "gradient"
    if operation == "AssignVariableOp" or is_asked(calls):
        return "copy"
    if operation == "Identity":
        if _outermost(calls)[1] in _MAKES:
            return "copy"
        if target is HOST:
            return "number"
    if operation == "StringFormat":
        return "print"
    return "index" if operand.is_kept else "operand"
