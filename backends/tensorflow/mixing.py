"""Operations on tensors of several devices, which TensorFlow copies to one device without an error.

While a strict block is open, each operation is checked before it runs, those of the backward pass included, and
what a `tf.function` is given; not what it does inside.
"""

from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf

from xdevice.backends.tensorflow.eager.operations import HOST, Operand, here, looked_at, operands, spoken
from xdevice.backends.tensorflow.private_names import context
from xdevice.device import Device
from xdevice.errors import mixed


def forbid() -> AbstractContextManager[None]:
    return looked_at(_check)


def _check(operation: str, arguments: Any, places: set[str]) -> None:
    """Raise `MixedDeviceError` if what was given to the operation is on several devices.

    TensorFlow puts what it makes of Python's numbers, scalars and shapes, on the device of the scope, and
    takes both from the CPU: beside other tensors these do not count. NumPy arrays go where the scope is.
    """
    if len(places) < 2 or operation == "AssignVariableOp" or tf.distribute.has_strategy():
        return  # an assignment is an explicit copy; a strategy's copies are its own
    given = [operand for _, operand in operands(operation, arguments) if not operand.is_kept]
    found = {operand.place for operand in _counted(given)}
    if len(found) > 1:
        raise mixed(_where(operation, found), found)


def _counted(given: list[Operand]) -> list[Operand]:
    """Those that are an author's tensors. What stands alone counts: of two scalars, or two shapes, each does."""
    scope = here()
    given = [o for o in given if not (o.is_scalar and o.place is HOST)]
    if not all(o.is_shape for o in given):
        given = [o for o in given if not (o.is_shape and o.place in (HOST, scope))]
    if not all(o.is_scalar for o in given):
        given = [o for o in given if not (o.is_scalar and o.place is scope)]
    return given


def _where(operation: str, found: set[Device]) -> str:
    """The operation for the message, with the device on which it runs where that is nobody's choice."""
    astray = not context.context().device_name and here() in found
    return f"{spoken(operation)}, outside any scope and so run on {here()}," if astray else spoken(operation)
