"""Operations on tensors of several devices, which TensorFlow copies to one device without an error.

Every operation, those of the backward pass and calls of a `tf.function` included, goes through three functions of
TensorFlow, in every thread. While a strict block is open, these check first where the operands are. Operations inside
a `tf.function` are placed when it is traced, and are not checked.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.python import pywrap_tfe  # the three functions, which every operation looks up anew
from tensorflow.python.eager import context, core  # in which scope this thread is; the short way given up
from tensorflow.python.framework import op_def_registry  # what an operation calls its arguments

from xdevice.backends.tensorflow.hardware import count, is_virtual
from xdevice.backends.tensorflow.placement import placed, role, variable_of
from xdevice.device import Device
from xdevice.errors import mixed

_core: Any = core
_Eager: Any = tf.__internal__.EagerTensor
_CPU = Device("cpu", 0)
_DIMENSIONS = 8  # as many as any kernel takes: so few integers may be a shape
_INDICES = frozenset({"ids", "indices", "labels", "segment_ids", "sparse_indices", "targets"})
"""Arguments of integers that are data, however few."""
_FUNCTION = re.compile(r"__(?:inference|forward|backward)_(?:__backward_)?(.+?)_\d+(?:_\d+)*")
_thread = threading.local()  # which operation has been looked at, and goes on to the long way
_holds: dict[type, bool] = dict.fromkeys((bool, bytes, float, int, str, type(None), tf.DType, tf.TensorShape), False)
"""Whether an argument of this type, if it is not a plain tensor, may be on a device."""


@contextmanager
def forbid() -> Generator[None, None, None]:
    engine: Any = pywrap_tfe
    before = engine.TFE_Py_FastPathExecute, engine.TFE_Py_Execute, engine.TFE_Py_ExecuteCancelable
    engine.TFE_Py_FastPathExecute = _looking_at_arguments(before[0])
    engine.TFE_Py_Execute, engine.TFE_Py_ExecuteCancelable = map(_looking_at_inputs, before[1:])
    try:
        yield
    finally:
        engine.TFE_Py_FastPathExecute, engine.TFE_Py_Execute, engine.TFE_Py_ExecuteCancelable = before


def _looking_at_arguments(run: Callable[..., Any]) -> Callable[..., Any]:
    """The short way: the arguments as they were given, Python's numbers among them, and attributes behind."""

    def execute(running: Any, operation: str, name: Any, *arguments: Any) -> Any:
        if len(_places(arguments, set())) > 1:
            _check(operation, arguments)
        try:
            return run(running, operation, name, *arguments)
        except _core._FallbackException:
            _thread.checked = operation
            raise

    return execute


def _looking_at_inputs(run: Callable[..., Any]) -> Callable[..., Any]:
    """The long way, which functions go, and operations whose arguments must be made tensors first."""

    def execute(running: Any, device: Any, operation: str | bytes, inputs: Any, *rest: Any) -> Any:
        if len(_places(inputs, set())) > 1:
            name = operation if isinstance(operation, str) else operation.decode()
            if getattr(_thread, "checked", None) != name:  # else a tensor made meanwhile was not checked
                _check(name, inputs)
        _thread.checked = None
        return run(running, device, operation, inputs, *rest)

    return execute


def _places(arguments: Iterable[Any], found: set[str]) -> set[str]:
    """TensorFlow's names of the devices on which the arguments are: asked of each operation, so quickly."""
    for argument in arguments:
        kind = type(argument)
        if kind is _Eager:
            found.add(argument.device)
        elif kind is list or kind is tuple:
            _places(argument, found)
        elif _holds.get(kind, True):
            handle = _handle(argument)
            if handle is not None:
                found.add(handle.device)
    return found


def _handle(argument: Any) -> Any:
    """Where a variable's values are, if it is one."""
    if _holds.setdefault(type(argument), role(type(argument)) == "tensor"):
        handle = getattr(variable_of(argument), "_handle", None)
        return handle if isinstance(handle, _Eager) else None
    return None


def _check(operation: str, arguments: Any) -> None:
    """Raise `MixedDeviceError` if what was given to the operation is on several devices.

    TensorFlow puts what it makes of Python's numbers, scalars and shapes, on the device of the scope, and
    takes both from the CPU: beside other tensors these do not count.
    """
    if operation == "AssignVariableOp" or tf.distribute.has_strategy():
        return  # an explicit copy, or a strategy's own
    found = {operand.place for operand in _counted(list(_operands(operation, arguments)))}
    if len(found) > 1:
        raise mixed(_spoken(operation, found), found)


def _counted(operands: list[_Operand]) -> list[_Operand]:
    """Those that are an author's tensors. What stands alone counts: of two scalars, or two shapes, each does."""
    here = _here()
    operands = [o for o in operands if not (o.is_scalar and o.place is _CPU)]
    if not all(o.is_shape for o in operands):
        operands = [o for o in operands if not (o.is_shape and o.place in (_CPU, here))]
    if not all(o.is_scalar for o in operands):
        operands = [o for o in operands if not (o.is_scalar and o.place is here)]
    return operands


class _Operand(NamedTuple):
    """A tensor that was given to an operation, or a variable."""

    place: Device
    is_scalar: bool
    is_shape: bool  # or might be one


def _operands(operation: str, arguments: Any) -> Iterator[_Operand]:
    definition = op_def_registry.get(operation)
    names = [argument.name for argument in definition.input_arg] if definition is not None else []
    for i, argument in enumerate(arguments):
        name = names[i] if i < len(names) else ""
        for value in argument if isinstance(argument, (list, tuple)) else [argument]:
            tensor = value if type(value) is _Eager else _handle(value)
            if tensor is not None:
                yield from _operand(name, tensor)


def _operand(name: str, tensor: Any) -> Iterator[_Operand]:
    """The tensor as an operand, unless it is of a kind that is in the host's memory whatever the scope."""
    place, dtype, shape = placed(tensor.device), tensor.dtype, tuple(tensor.shape)
    if dtype == tf.resource:
        held = tensor._handle_data
        if held is None or not held.is_set:
            return  # an iterator, or a table
        variable = held.shape_and_type[0]
        dtype, shape = tf.as_dtype(variable.dtype), tuple(dim.size for dim in variable.shape.dim)
    elif dtype in (tf.string, tf.variant) or tensor.backing_device != tensor.device:
        return  # most int32 of a GPU are in the host's memory
    elif dtype == tf.int32 and place is _CPU and not is_virtual():
        return  # so those on the host may be a real GPU's
    is_row = len(shape) == 1 or shape[1:] == (2,)  # a shape, or paddings
    is_shape = dtype in (tf.int32, tf.int64) and is_row and shape[0] <= _DIMENSIONS and name not in _INDICES
    yield _Operand(place, shape == (), is_shape)


def _here() -> Device:
    """Where this thread's operations run: on the scope's device, else on TensorFlow's default."""
    running: Any = context.context()
    if running.device_name:
        return placed(running.device_name)
    return Device("gpu", 0) if count("gpu") and not is_virtual() else _CPU


def _spoken(operation: str, found: set[Device]) -> str:
    """The operation for a message, a function by the name that its author gave it."""
    function = _FUNCTION.fullmatch(operation)
    if function is not None:
        gradient = "the gradient of " if "backward_" in operation else ""
        operation = f"{gradient}tf.function {function[1]!r}"
    running: Any = context.context()
    astray = not running.device_name and _here() in found
    return f"{operation}, outside any scope and so run on {_here()}," if astray else operation
