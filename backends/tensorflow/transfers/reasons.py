"""What a copy is for: the functions of libraries that make it, and what a `tf.function` does with its arguments."""

import gc
import weakref
from collections.abc import Iterator
from functools import lru_cache
from inspect import currentframe
from types import FrameType
from typing import Any

from xdevice.backends.tensorflow.mixing import HOST, Operand
from xdevice.backends.tensorflow.placement import placed, variable_of
from xdevice.backends.tensorflow.private_names import context
from xdevice.contract import Kind
from xdevice.device import Device

Calls = list[tuple[str, str]]
"""The module and the name of each function of a library that is running, the innermost first."""

_LIBRARIES = frozenset({"contextlib", "functools", "keras", "numpy", "tensorflow", "tf_keras", "xdevice"})
_HOOKS = tuple(f"xdevice.backends.tensorflow.{module}" for module in ("compiling", "mixing", "transfers"))
_BETWEEN = frozenset({"error_handler", "new_func", "op_dispatch_handler", "wrapped", "wrapper"})  # decorators'
_MAKES = frozenset({"cast", "constant", "convert_to_tensor_v2_with_dispatch", "identity", "identity_n", "read_value"})
"""Functions of TensorFlow by which a program asks for a tensor, and so for its copy."""
_FEEDS = ("tensorflow.python.data.", "tensorflow.python.ops.variables")
_COMPUTES = ("keras.src.ops", "xdevice.backends.tensorflow.maths", "xdevice.kit.standard")
LOOPS = ("keras.src.backend.tensorflow.trainer", "tensorflow.python.data.", "tf_keras.src.engine.")

_optimizers: dict[str, list[weakref.ref[Any]]] = {}  # by function, those whose steps it makes


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


def kind_of_made(calls: Calls) -> Kind:
    """Of the copy of an array or a list of which a tensor is made."""
    if is_backward(calls):
        return "gradient"
    module, name = _outermost(calls)
    is_keras = module.startswith(("keras.", "tf_keras.")) and not module.startswith(_COMPUTES)
    return "copy" if name in _MAKES or is_keras or module.startswith(_FEEDS) or is_asked(calls) else "index"


def kind_of_operand(operation: str, operand: Operand, target: Device, calls: Calls) -> Kind:
    """Of the copy of an operand to where the operation runs."""
    if is_backward(calls):
        return "gradient"
    is_made = operation == "Identity" and _outermost(calls)[1] in _MAKES
    if operation == "AssignVariableOp" or is_made or is_asked(calls):
        return "copy"
    if operation == "Identity" and target is HOST:
        return "number"
    return "print" if operation == "StringFormat" else "index" if operand.is_kept else "operand"


def targets_of(function: str, argument: int, scope: Device) -> set[Device]:
    """The devices on which the function needs the argument: the scope's, where its author has named none."""
    return {placed(name) if name else scope for name in _needed(function)[argument]}


def steps_of(function: str, arguments: Any) -> Iterator[object]:
    """The optimizers that make a step in the function: they count it in a variable to which it assigns."""
    if function not in _optimizers:
        handles = {id(arguments[i]) for i in _assigned(function) if i < len(arguments)}
        found = gc.get_objects() if handles else []
        kinds = {kind for kind in {type(each) for each in found} if _is_optimizer(kind)}
        ours = [each for each in found if type(each) in kinds and id(counter_of(each)) in handles]
        _optimizers[function] = [weakref.ref(each) for each in ours]
    for known in _optimizers[function]:
        optimizer = known()
        if optimizer is not None:
            yield optimizer


def counter_of(optimizer: object) -> Any:
    """The handle of the variable in which an optimizer of Keras counts its steps; None for any other object."""
    counter = getattr(optimizer, "_iterations", None) if _is_optimizer(type(optimizer)) else None
    return getattr(variable_of(counter), "_handle", None)


def _is_optimizer(cls: type) -> bool:
    return all(any(name in vars(each) for each in cls.__mro__) for name in ("iterations", "apply_gradients"))


@lru_cache(maxsize=1024)
def _needed(function: str) -> list[set[str]]:
    """TensorFlow's names of the devices of the operations that take each argument; empty where none is named."""
    definition = context.context().get_function_def(function)
    needed: dict[str, set[str]] = {argument.name: set() for argument in definition.signature.input_arg}
    for node in definition.node_def:
        for given in node.input:
            needed.get(given.partition(":")[0], set()).add(node.device)
    return list(needed.values())


@lru_cache(maxsize=1024)
def _assigned(function: str) -> frozenset[int]:
    """The numbers of the arguments that are variables to which it assigns, in the functions that it calls too."""
    definition = context.context().get_function_def(function)
    numbers = {argument.name: i for i, argument in enumerate(definition.signature.input_arg)}
    found: set[int | None] = set()
    for node in definition.node_def:
        given = [numbers.get(name.partition(":")[0]) for name in node.input if not name.startswith("^")]
        if node.op in ("AssignAddVariableOp", "AssignVariableOp"):
            found.add(given[0])
        for attribute in node.attr.values():
            for called in filter(None, (each.name for each in (attribute.func, *attribute.list.func))):
                inputs = context.context().get_function_def(called).signature.input_arg
                found |= {given[i - len(inputs)] for i in _assigned(called)}  # behind a condition is one more
    return frozenset(i for i in found if i is not None)
