"""Operations that GPUs lack, placed as TensorFlow places them: on the CPU, or refused without soft placement.

They are those of text, images, sets and some others (`cpu_only`). An eager operation is looked at where it is run, one
of a graph where it is made. What is text is on the CPU, whatever made it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python import pywrap_tfe
from tensorflow.python.eager import context as _context
from tensorflow.python.framework import errors
from tensorflow.python.framework import ops as _ops

from xdevice.backends.tensorflow.virtual.cpu_only import NAMES

HOST = "CPU:0"

context: Any = _context
ops: Any = _ops
runtime: Any = pywrap_tfe


def start() -> None:
    """Place them, eager ones and those of graphs."""
    runtime.TFE_Py_FastPathExecute = _eager(runtime.TFE_Py_FastPathExecute)
    kind = ops.Graph
    kind._create_op_helper = _in_graph(kind._create_op_helper)
    kind = ops.EagerTensor
    kind.device = _device_of_text(kind.device)


def _eager(run: Callable[..., Any]) -> Callable[..., Any]:
    def call(running: Any, operation: str, *args: Any) -> Any:
        if operation not in NAMES or running.device_spec.device_type == "CPU":
            return run(running, operation, *args)
        _check(operation, running.device_spec.to_string())
        with context.device(HOST):
            return run(running, operation, *args)

    return call


def _in_graph(create: Callable[..., Any]) -> Callable[..., Any]:
    def call(self: Any, operation: Any, compute_device: bool = True) -> None:
        create(self, operation, compute_device)
        if compute_device and operation.type in NAMES and f"/device:{HOST}" not in operation.device:
            _check(operation.type, operation.device)
            spec = tf.DeviceSpec.from_string(operation.device).replace(device_type="CPU", device_index=0)
            operation._set_device(spec.to_string())

    return call


def is_soft(running: Any) -> bool:
    """Whether placement is soft; while a function is traced, TensorFlow itself answers otherwise."""
    return running._soft_device_placement is not False


def _check(operation: str, device: str) -> None:
    running = context.context()
    if "GPU" not in device or is_soft(running):
        return
    listed = ", ".join(each.name for each in running.list_logical_devices())
    raise errors.InvalidArgumentError(
        None,
        None,
        f"Could not satisfy device specification '{device}'. enable_soft_placement=0. Supported device types [CPU]. "
        f"All available devices [{listed}]. [Op:{operation}]",
    )


def _device_of_text(shown: property) -> property:
    """A property that says CPU 0 for text."""
    name: Any = shown.fget

    def device(self: Any) -> Any:
        where = name(self)
        return where if self.dtype != tf.string else where.rpartition("device:")[0] + f"device:{HOST}"

    return property(device)
