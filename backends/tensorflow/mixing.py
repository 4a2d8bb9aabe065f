"""Observing the operations that TensorFlow runs eagerly, and their operands' devices.

Every operation goes through one of three functions of TensorFlow, in every
thread; so do operations of the backward pass and calls of a `tf.function`.
These three are replaced while an observer is registered. Operations inside a
`tf.function` are placed when it is traced, and are not observed.

TensorFlow copies operands from other devices without an error. A strict block
observes them, and raises one.
"""

import re
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf

from xdevice.backends.kit.private_names import replaced
from xdevice.backends.tensorflow.hardware import count, replaced_gpus
from xdevice.backends.tensorflow.placement import Eager, Tensor, category, placed, variable_of
from xdevice.backends.tensorflow.private_names import core, engine, names, runtime
from xdevice.contract import NativeDtype
from xdevice.device import Device
from xdevice.errors import MixedDeviceError, mixed

Argument: TypeAlias = Any  # a tensor, a variable, an array, a number, or a list of these
Arguments: TypeAlias = Any  # a sequence of them
GraphNode: TypeAlias = Any  # a node in the definition of a `tf.function`
Runner: TypeAlias = Callable[..., Any]  # TensorFlow's function that runs an operation
Runtime: TypeAlias = Any  # a handle of TensorFlow's

Observer: TypeAlias = Callable[[str, Arguments, set[str]], None]
"""Called with an operation's name, its arguments, and the names of the arguments' devices."""

HOST = Device("cpu", 0)
INDICES = frozenset({"ids", "indices", "labels", "segment_ids", "sparse_indices", "targets"})
"""Arguments of integers that are data, however few."""

_COPIES = frozenset({"Identity", "IdentityN"})
"""Operations that copy: a program calls them, and TensorFlow does when it reads a variable."""

DIMENSIONS = 8
"""The largest number of dimensions of a kernel: a vector of more integers is not a shape."""

_FUNCTION = re.compile(r"^__(?:inference|forward|backward)_(?:__backward_)?(.+?)_\d+(?:_\d+)*$")
# the definition of an operation, with the names of its arguments
_definition: Any = names.value("tensorflow.python.framework.op_def_registry:get")
_thread = threading.local()  # `observed`: the operation that was observed on the fast path
_WITHOUT_DEVICE = (bool, bytes, float, int, str, type(None), tf.DType, tf.TensorShape)
_may_have_device: dict[type, bool] = dict.fromkeys(_WITHOUT_DEVICE, False)
"""Whether an argument of this type, if it is not a plain tensor, may be on a device."""
_lock = threading.Lock()
_observers: tuple[Observer, ...] = ()
_replacements = ExitStack()


def forbid() -> AbstractContextManager[None]:
    return observed(_check)


def _check(operation: str, arguments: Arguments, device_names: set[str]) -> None:
    """Raise `MixedDeviceError` if the operands that count are on several devices.

    It is an error, too, if the operation runs on the default device, outside any scope, and its
    operands are elsewhere.
    """
    has_scope = bool(runtime().device_name)
    if not device_names or (has_scope and len(device_names) < 2):
        return
    if operation == "AssignVariableOp" or tf.distribute.has_strategy():
        return  # an assignment is an explicit copy; a strategy's copies are its own
    scope = current_device()
    counting = _operands_that_count(operation, arguments, scope)
    devices = {operand.device for operand in counting}
    outside = f", outside any scope and so run on {scope},"
    if not has_scope and _leaves_its_operands(operation, counting, scope):
        (device,) = devices
        cure = f"enter their device, with scope('{device}')"
        message = f"{operation}{outside} was given tensors on {device}; {cure}"
        raise MixedDeviceError(message, (scope, device))
    if len(devices) > 1:
        subject = readable_name(operation)
        if not has_scope and scope in devices:
            subject += outside
        raise mixed(subject, devices)


def _operands_that_count(operation: str, arguments: Arguments, scope: Device) -> "list[Operand]":
    """The operands whose devices must agree.

    TensorFlow makes tensors of Python's numbers (scalars, and shapes) on the device of the scope,
    and accepts both from the CPU: they do not count beside other tensors. Of two scalars, or two
    shapes, each counts. NumPy arrays are copied to the device of the scope.
    """
    counting = [operand for _, operand in operands(operation, arguments) if not operand.is_on_host]
    counting = [operand for operand in counting if operand.shape or operand.device is not HOST]
    if not all(operand.is_shape for operand in counting):
        counting = [
            operand
            for operand in counting
            if not operand.is_shape or operand.device not in (HOST, scope)
        ]
    if any(operand.shape for operand in counting):
        counting = [operand for operand in counting if operand.shape or operand.device is not scope]
    return counting


def _leaves_its_operands(operation: str, operands: "list[Operand]", scope: Device) -> bool:
    """Whether the operation runs on another device than its operands, which share one.

    The body of a `tf.function` decides where it computes, so a function does not count.
    """
    if len({operand.device for operand in operands}) != 1 or operands[0].device is scope:
        return False
    is_function = not names_in(operation)
    if is_function or operation in _COPIES:
        return False
    return not any(operand.is_handle for operand in operands)


@contextmanager
def observed(observer: Observer) -> Generator[None]:
    """A block in which the observer is called before each operation.

    An operation raises the errors of its observers.
    """
    global _observers
    names.require("strict() and watch_transfers()")
    with _lock:
        if not _observers:
            _replace_runners()
        _observers = (*_observers, observer)
    try:
        yield
    finally:
        with _lock:
            _observers = tuple(other for other in _observers if other is not observer)
            if not _observers:
                _replacements.close()


def _replace_runners() -> None:
    def replace(name: str, replacement: Runner) -> None:
        _replacements.enter_context(replaced(engine, name, lambda run: partial(replacement, run)))

    replace("TFE_Py_FastPathExecute", _fast_path)
    replace("TFE_Py_Execute", _slow_path)
    replace("TFE_Py_ExecuteCancelable", _slow_path)


def _fast_path(
    run: Runner, context: Runtime, operation: str, name: str | None, *arguments: Argument
) -> Any:
    """Runs most operations. The arguments are not converted yet; the attributes follow them."""
    _notify(operation, arguments)
    try:
        return run(context, operation, name, *arguments)
    except core._FallbackException:  # TensorFlow goes on with the slow path
        _thread.observed = operation
        raise


def _slow_path(
    run: Runner,
    context: Runtime,
    device: str,
    operation: str | bytes,
    inputs: Arguments,
    *settings: Any,
) -> Any:
    """Runs functions, and operations whose arguments must first be converted to tensors."""
    name = operation if isinstance(operation, str) else operation.decode()
    # an operation that converts an argument may run between the two paths
    if getattr(_thread, "observed", None) != name:
        _notify(name, inputs)
    _thread.observed = None
    return run(context, device, operation, inputs, *settings)


def _notify(operation: str, arguments: Arguments) -> None:
    device_names = _device_names(arguments, set())
    for observer in _observers:
        observer(operation, arguments, device_names)


def _device_names(arguments: Iterable[Argument], names: set[str]) -> set[str]:
    """TensorFlow's names of the devices of the arguments, added to ``names``.

    This runs for each operation, so it must be fast.
    """
    for argument in arguments:
        cls = type(argument)
        if cls is Eager:
            names.add(argument.device)
        elif cls is list or cls is tuple:
            _device_names(argument, names)
        elif cls is np.ndarray:
            names.add("/CPU:0")
        elif _may_have_device.get(cls, True):
            handle = _handle(argument)
            if handle is not None:
                names.add(handle.device)
    return names


def _handle(argument: Argument) -> Tensor | None:
    """The handle of a variable, which is a tensor; ``None`` if the argument is not a variable."""
    if _may_have_device.setdefault(type(argument), category(type(argument)) == "tensor"):
        handle = getattr(variable_of(argument), "_handle", None)
        return handle if isinstance(handle, Eager) else None
    return None


class Operand(NamedTuple):
    """An argument of an operation: a tensor, a variable, or a NumPy array."""

    value: Argument
    name: str  # of the operation's argument; empty for an argument of a `tf.function`
    device: Device
    dtype: NativeDtype
    shape: tuple[int, ...]
    is_on_host: bool = False  # in the host's memory: an array, or an int32 of a GPU

    @property
    def is_shape(self) -> bool:
        """Whether it may be a shape, or paddings."""
        if self.name in INDICES or self.dtype not in (tf.int32, tf.int64):
            return False
        is_vector_or_pairs = len(self.shape) == 1 or self.shape[1:] == (2,)
        return is_vector_or_pairs and self.shape[0] <= DIMENSIONS

    @property
    def is_handle(self) -> bool:
        """Whether it is the handle of a variable; its operations run beside the variable."""
        return type(self.value) is Eager and self.value.dtype == tf.resource

    @property
    def is_small(self) -> bool:
        """Whether it is an integer, or a shape, that TensorFlow's kernels read on the host."""
        if self.name in INDICES:
            return False
        if self.is_shape or (self.is_on_host and not isinstance(self.value, np.ndarray)):
            return True
        return not self.shape and self.dtype in (tf.int32, tf.int64)


def operands(operation: str, arguments: Arguments) -> Iterator[tuple[int, Operand]]:
    """Each operand with the number of its argument."""
    names = names_in(operation)
    for i, argument in enumerate(arguments):
        name = names[i] if i < len(names) else ""
        if isinstance(argument, (list, tuple)):
            values = argument
            if name in INDICES and _begins_with_integer(argument):
                yield i, Operand(argument, name, HOST, tf.int32, np.shape(argument), True)
        else:
            values = [argument]
        for value in values:
            operand = _operand(value, name)
            if operand is not None:
                yield i, operand


@lru_cache(maxsize=4096)
def names_in(operation: str) -> tuple[str, ...]:
    """The names of an operation's arguments; none for a `tf.function`."""
    definition = _definition(operation)
    if definition is None:
        return ()
    return tuple(argument.name for argument in definition.input_arg)


def _begins_with_integer(numbers: Argument) -> bool:
    """Whether the first number of a nested list is an integer of Python."""
    while isinstance(numbers, (list, tuple)) and numbers:
        numbers = numbers[0]
    return type(numbers) is int


def _operand(value: Argument, name: str) -> Operand | None:
    """The value as an operand, unless it is of a kind that never counts."""
    if type(value) is np.ndarray and value.dtype.kind in "biufc":
        return Operand(value, name, HOST, tf.as_dtype(value.dtype), value.shape, True)
    tensor = value if type(value) is Eager else _handle(value)
    if tensor is None or tensor.dtype in (tf.string, tf.variant):
        return None
    device = placed(tensor.device)
    dtype = tensor.dtype
    shape = tuple(tensor.shape)
    if dtype == tf.resource:
        data = tensor._handle_data
        if data is None or not data.is_set:
            return None  # an iterator, or a table
        variable = data.shape_and_type[0]
        dtype = tf.as_dtype(variable.dtype)
        shape = tuple(dim.size for dim in variable.shape.dim)
    elif tensor.backing_device != tensor.device:
        return Operand(value, name, HOST, dtype, shape, True)
    elif dtype == tf.int32 and device is HOST and not replaced_gpus.number:
        return None  # it may be a GPU's: real GPUs keep int32 on the host
    return Operand(value, name, device, dtype, shape)


def current_device() -> Device:
    """Where this thread's operations run: on the scope's device, or TensorFlow's default."""
    name = runtime().device_name
    return placed(name) if name else _default()


@lru_cache(maxsize=1)
def _default() -> Device:
    has_real_gpu = count("gpu") > 0 and not replaced_gpus.number
    return Device("gpu", 0) if has_real_gpu else HOST


def readable_name(operation: str) -> str:
    """The operation's name in messages; for a `tf.function`, the name of the Python function."""
    prefix = "the gradient of " if "backward_" in operation else ""
    return _FUNCTION.sub(lambda function: f"{prefix}tf.function {function[1]!r}", operation)


def targets_of(function: str, argument: int, scope: Device) -> set[Device]:
    """The devices on which the function needs the argument; the scope's if it names none."""
    device_names = _device_names_by_argument(function)[argument]
    return {placed(name) if name else scope for name in device_names}


@lru_cache(maxsize=1024)
def _device_names_by_argument(function: str) -> list[set[str]]:
    """The names of the devices of the operations that use each argument.

    A name is empty if the operation has no device.
    """
    definition = runtime().get_function_def(function)
    device_names: dict[str, set[str]] = {
        argument.name: set() for argument in definition.signature.input_arg
    }
    for node in definition.node_def:
        for source in node.input:
            device_names.get(source.partition(":")[0], set()).add(node.device)
    return list(device_names.values())


@lru_cache(maxsize=1024)
def assigned_by(function: str) -> frozenset[int]:
    """The numbers of the arguments that are variables to which the function assigns.

    Functions that it calls count, too.
    """
    definition = runtime().get_function_def(function)
    numbers = {argument.name: i for i, argument in enumerate(definition.signature.input_arg)}
    assigned: set[int | None] = set()
    for node in definition.node_def:
        sources = [source for source in node.input if not source.startswith("^")]
        arguments = [numbers.get(source.partition(":")[0]) for source in sources]
        if node.op in ("AssignAddVariableOp", "AssignVariableOp"):
            assigned.add(arguments[0])
        for called in _functions_called(node):
            inputs = runtime().get_function_def(called).signature.input_arg
            # counted from the end: a condition precedes the arguments
            assigned |= {arguments[i - len(inputs)] for i in assigned_by(called)}
    return frozenset(i for i in assigned if i is not None)


def _functions_called(node: GraphNode) -> Iterator[str]:
    for attribute in node.attr.values():
        for function in (attribute.func, *attribute.list.func):
            if function.name:
                yield function.name
