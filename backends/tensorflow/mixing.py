"""Each operation that TensorFlow runs eagerly, as it is about to run, with its operands and where they are and go.

Every operation, those of the backward pass and calls of a `tf.function` included, goes through three functions of
TensorFlow, in every thread. While anything looks, these are replaced. Operations inside a `tf.function` are placed
when it is traced, and are not seen.

TensorFlow copies operands from other devices without an error. A strict block looks, and raises one.
"""

import re
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from xdevice.backends.tensorflow.hardware import count, replaced_gpus
from xdevice.backends.tensorflow.placement import Eager, placed, role, variable_of
from xdevice.backends.tensorflow.private_names import core, engine, names, runtime
from xdevice.device import Device
from xdevice.errors import MixedDeviceError, mixed
from xdevice.kit.private_names import replaced

Look = Callable[[str, Any, set[str]], None]
"""What is called with an operation's name, its arguments, and TensorFlow's names of the devices where these are."""

HOST = Device("cpu", 0)
INDICES = frozenset({"ids", "indices", "labels", "segment_ids", "sparse_indices", "targets"})
"""Arguments of integers that are data, however few."""

_COPIES = frozenset({"Identity", "IdentityN"})
"""Operations by which programs and TensorFlow itself copy: reading a variable ends in one."""

DIMENSIONS = 8  # as many as any kernel takes: so few integers may be a shape

_FUNCTION = re.compile(r"^__(?:inference|forward|backward)_(?:__backward_)?(.+?)_\d+(?:_\d+)*$")
_definition: Any = names.value(
    "tensorflow.python.framework.op_def_registry:get"
)  # what it calls its arguments
_thread = threading.local()  # which operation has been looked at, and goes on to the long way
_holds: dict[type, bool] = dict.fromkeys(
    (bool, bytes, float, int, str, type(None), tf.DType, tf.TensorShape), False
)
"""Whether an argument of this type, if it is not a plain tensor, may be on a device."""
_lock = threading.Lock()
_looks: tuple[Look, ...] = ()
_replaced = ExitStack()


def forbid() -> AbstractContextManager[None]:
    return looked_at(_check)


def _check(operation: str, arguments: Any, places: set[str]) -> None:
    """Raise `MixedDeviceError` if what was given to the operation is on several devices.

    TensorFlow puts what it makes of Python's numbers, scalars and shapes, on the device of the scope, and takes both
    from the CPU: beside other tensors these do not count. Of two scalars, or two shapes, each does. NumPy arrays go
    where the scope is. Outside any scope the default device computes, wherever the operands are: an error, too.
    """
    has_scope = bool(runtime().device_name)
    if not places or (has_scope and len(places) < 2):
        return
    if operation == "AssignVariableOp" or tf.distribute.has_strategy():
        return  # an assignment is an explicit copy; a strategy's copies are its own
    scope, given = (
        here(),
        [operand for _, operand in operands(operation, arguments) if not operand.is_kept],
    )
    given = [o for o in given if o.shape or o.place is not HOST]
    if not all(o.is_shape for o in given):
        given = [o for o in given if not (o.is_shape and o.place in (HOST, scope))]
    if any(o.shape for o in given):
        given = [o for o in given if o.shape or o.place is not scope]
    found = {operand.place for operand in given}
    if not has_scope and _strays(operation, given, scope):
        (place,) = found
        said = f"{operation}, outside any scope and so run on {scope}, was given tensors on {place}"
        raise MixedDeviceError(f"{said}; enter their device, with scope('{place}')", (scope, place))
    if len(found) > 1:
        astray = not has_scope and scope in found  # nobody has chosen the device on which it runs
        raise mixed(
            f"{spoken(operation)}{f', outside any scope and so run on {scope},' * astray}", found
        )


def _strays(operation: str, given: "list[Operand]", scope: Device) -> bool:
    """Whether the operation leaves the one device of its operands; a function decides inside where it computes."""
    if len({operand.place for operand in given}) != 1 or given[0].place is scope:
        return False
    is_computed = operation not in _COPIES and bool(names_in(operation))
    return is_computed and not any(operand.is_handle for operand in given)


@contextmanager
def looked_at(look: Look) -> Generator[None, None, None]:
    """A block in which the function is called before each operation; an error that it raises is the operation's."""
    global _looks
    names.require("strict() and watch_transfers()")
    with _lock:
        if not _looks:
            _replaced.enter_context(
                replaced(engine, "TFE_Py_FastPathExecute", lambda run: partial(_short_way, run))
            )
            for name in ("TFE_Py_Execute", "TFE_Py_ExecuteCancelable"):
                _replaced.enter_context(replaced(engine, name, lambda run: partial(_long_way, run)))
        _looks = (*_looks, look)
    try:
        yield
    finally:
        with _lock:
            _looks = tuple(each for each in _looks if each is not look)
            if not _looks:
                _replaced.close()


def _short_way(
    run: Callable[..., Any], running: Any, operation: str, name: Any, *arguments: Any
) -> Any:
    """The arguments are as they were given, Python's numbers among them, and attributes behind."""
    _look(operation, arguments)
    try:
        return run(running, operation, name, *arguments)
    except core._FallbackException:
        _thread.seen = operation
        raise


def _long_way(
    run: Any, running: Any, device: Any, operation: str | bytes, inputs: Any, *rest: Any
) -> Any:
    """Functions go it, and operations whose arguments must be made tensors first."""
    name = operation if isinstance(operation, str) else operation.decode()
    if getattr(_thread, "seen", None) != name:  # else a tensor made meanwhile was not seen
        _look(name, inputs)
    _thread.seen = None
    return run(running, device, operation, inputs, *rest)


def _look(operation: str, arguments: Any) -> None:
    places = _places(arguments, set())
    for look in _looks:
        look(operation, arguments, places)


def _places(arguments: Iterable[Any], found: set[str]) -> set[str]:
    """TensorFlow's names of the devices on which the arguments are: asked of each operation, so quickly."""
    for argument in arguments:
        kind = type(argument)
        if kind is Eager:
            found.add(argument.device)
        elif kind is list or kind is tuple:
            _places(argument, found)
        elif kind is np.ndarray:
            found.add("/CPU:0")
        elif _holds.get(kind, True):
            handle = _handle(argument)
            if handle is not None:
                found.add(handle.device)
    return found


def _handle(argument: Any) -> Any:
    """Where a variable's values are, if it is one."""
    if _holds.setdefault(type(argument), role(type(argument)) == "tensor"):
        handle = getattr(variable_of(argument), "_handle", None)
        return handle if isinstance(handle, Eager) else None
    return None


class Operand(NamedTuple):
    """A tensor that is given to an operation, or a variable, or a NumPy array."""

    value: Any
    name: str  # the operation's for the argument; empty for a function's
    place: Device
    dtype: Any
    shape: tuple[int, ...]
    is_kept: bool = False  # in the host's memory, an array, or as most int32 of a GPU

    @property
    def is_shape(self) -> bool:
        """Whether it is a shape, or paddings, or might be."""
        few = (len(self.shape) == 1 or self.shape[1:] == (2,)) and self.shape[0] <= DIMENSIONS
        return few and self.dtype in (tf.int32, tf.int64) and self.name not in INDICES

    @property
    def is_handle(self) -> bool:
        """Whether it is a variable's handle, whose operations run beside the variable."""
        return type(self.value) is Eager and self.value.dtype == tf.resource

    @property
    def is_small(self) -> bool:
        """Whether it is an integer, or a shape, that TensorFlow's kernels take from the host."""
        if self.name in INDICES:
            return False
        kept = self.is_kept and not isinstance(self.value, np.ndarray)
        return kept or self.is_shape or (not self.shape and self.dtype in (tf.int32, tf.int64))


def operands(operation: str, arguments: Any) -> Iterator[tuple[int, Operand]]:
    """Each operand with the number of its argument."""
    names = names_in(operation)
    for i, argument in enumerate(arguments):
        name = names[i] if i < len(names) else ""
        if name in INDICES and isinstance(argument, (list, tuple)) and _is_integer(argument):
            yield i, Operand(argument, name, HOST, tf.int32, np.shape(argument), True)
        for value in argument if isinstance(argument, (list, tuple)) else [argument]:
            if type(value) is np.ndarray and value.dtype.kind in "biufc":
                yield i, Operand(value, name, HOST, tf.as_dtype(value.dtype), value.shape, True)
            operand = _operand(value, name, value if type(value) is Eager else _handle(value))
            if operand is not None:
                yield i, operand


@lru_cache(maxsize=4096)
def names_in(operation: str) -> tuple[str, ...]:
    definition = _definition(operation)
    return (
        tuple(argument.name for argument in definition.input_arg) if definition is not None else ()
    )


def _is_integer(numbers: Any) -> bool:
    """Whether a list begins with an integer of Python's."""
    while isinstance(numbers, (list, tuple)) and numbers:
        numbers = numbers[0]
    return type(numbers) is int


def _operand(value: Any, name: str, tensor: Any) -> Operand | None:
    """The tensor as an operand, unless it is of a kind that never counts."""
    if tensor is None or tensor.dtype in (tf.string, tf.variant):
        return None
    place, dtype, shape = placed(tensor.device), tensor.dtype, tuple(tensor.shape)
    if dtype == tf.resource:
        held = tensor._handle_data
        if held is None or not held.is_set:
            return None  # an iterator, or a table
        variable = held.shape_and_type[0]
        dtype, shape = tf.as_dtype(variable.dtype), tuple(dim.size for dim in variable.shape.dim)
    elif tensor.backing_device != tensor.device:
        return Operand(value, name, HOST, dtype, shape, True)
    elif dtype == tf.int32 and place is HOST and not replaced_gpus.number:
        return None  # so those on the host may be a real GPU's
    return Operand(value, name, place, dtype, shape)


def here() -> Device:
    """Where this thread's operations run: on the scope's device, else on TensorFlow's default."""
    name = runtime().device_name
    return placed(name) if name else _default()


@lru_cache(maxsize=1)
def _default() -> Device:
    return Device("gpu", 0) if count("gpu") and not replaced_gpus.number else HOST


def spoken(operation: str) -> str:
    """The operation for a message, a function by the name that its author gave it."""
    gradient = "the gradient of " * ("backward_" in operation)
    return _FUNCTION.sub(lambda function: f"{gradient}tf.function {function[1]!r}", operation)


def targets_of(function: str, argument: int, scope: Device) -> set[Device]:
    """The devices on which the function needs the argument: the scope's, where its author has named none."""
    return {placed(name) if name else scope for name in _needed(function)[argument]}


@lru_cache(maxsize=1024)
def _needed(function: str) -> list[set[str]]:
    """TensorFlow's names of the devices of the operations that take each argument; empty where none is named."""
    definition = runtime().get_function_def(function)
    needed: dict[str, set[str]] = {
        argument.name: set() for argument in definition.signature.input_arg
    }
    for node in definition.node_def:
        for given in node.input:
            needed.get(given.partition(":")[0], set()).add(node.device)
    return list(needed.values())


@lru_cache(maxsize=1024)
def assigned_by(function: str) -> frozenset[int]:
    """The numbers of the arguments that are variables to which it assigns, in the functions that it calls too."""
    definition = runtime().get_function_def(function)
    numbers = {argument.name: i for i, argument in enumerate(definition.signature.input_arg)}
    found: set[int | None] = set()
    for node in definition.node_def:
        given = [
            numbers.get(name.partition(":")[0]) for name in node.input if not name.startswith("^")
        ]
        if node.op in ("AssignAddVariableOp", "AssignVariableOp"):
            found.add(given[0])
        for attribute in node.attr.values():
            for called in filter(
                None, (each.name for each in (attribute.func, *attribute.list.func))
            ):
                inputs = runtime().get_function_def(called).signature.input_arg
                found |= {
                    given[i - len(inputs)] for i in assigned_by(called)
                }  # behind a condition is one more
    return frozenset(i for i in found if i is not None)
