"""Operations that GPUs lack, placed as TensorFlow places them: on the CPU, or refused without soft placement.

They are those of text, images, sets and some others, and products of integers and the like (`cpu_only`). An eager
operation is looked at where it is run, one of a graph where it is made. What is text is on the CPU, whatever made it.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import errors

from xdevice.backends.tensorflow.private_names import context, in_place_of, ops
from xdevice.backends.tensorflow.virtual import cpu_only

HOST = "CPU:0"


def start() -> None:
    """Place them, eager ones and those of graphs."""
    in_place_of("tensorflow.python.pywrap_tfe:TFE_Py_FastPathExecute")(_eager)
    for name in ("TFE_Py_Execute", "TFE_Py_ExecuteCancelable"):
        in_place_of(f"tensorflow.python.pywrap_tfe:{name}")(_from_tensors)
    in_place_of("tensorflow.python.framework.ops:Graph._create_op_helper")(_in_graph)
    kind = ops.EagerTensor
    kind.device = _device_of_text(kind.device)


def _eager(run: Callable[..., Any], running: Any, operation: str, name: Any, *args: Any) -> Any:
    if running.device_spec.device_type == "CPU" or not cpu_only.is_lacking(operation, args):
        return run(running, operation, name, *args)
    _refuse(operation)
    with context.device(HOST):
        return run(running, operation, name, *args)


def _from_tensors(  # noqa: PLR0913, PLR0917  (TensorFlow's signature)
    run: Callable[..., Any], running: Any, device: Any, operation: Any, inputs: Any, attributes: Any, *rest: Any
) -> Any:
    """The long way, for arguments that were made tensors; all attributes are given."""
    name = operation if isinstance(operation, str) else operation.decode()
    given = dict(zip(attributes[::2], attributes[1::2], strict=True)) if attributes else {}
    on_host = context.context().device_spec.device_type == "CPU"
    if not on_host and cpu_only.is_lacking_for(name, given.__getitem__):
        _refuse(name)
        device = f"/device:{HOST}"
    return run(running, device, operation, inputs, attributes, *rest)


def _full(device: str) -> str:
    return device if "/job:" in device else f"/job:localhost/replica:0/task:0{device}"


def _in_graph(create: Callable[..., Any], self: Any, operation: Any, compute_device: bool = True) -> None:
    create(self, operation, compute_device)
    if not compute_device or f"/device:{HOST}" in operation.device:
        return
    if cpu_only.is_lacking_for(operation.type, operation.get_attr):
        if "GPU" in operation.device and not is_soft(context.context()):
            raise errors.InvalidArgumentError(
                operation.node_def,
                operation,
                f"Cannot assign a device for operation {operation.name}: Could not satisfy explicit device "
                f"specification '{operation.device}' because no supported kernel for GPU devices is available.",
            )
        spec = tf.DeviceSpec.from_string(operation.device).replace(device_type="CPU", device_index=0)
        operation._set_device(spec.to_string())


def is_soft(running: Any) -> bool:
    """Whether placement is soft; while a function is traced, TensorFlow itself answers otherwise."""
    return running._soft_device_placement is not False


def _refuse(operation: str) -> None:
    """Raise TensorFlow's error for an eager operation that was asked to run on a GPU, without soft placement."""
    running = context.context()
    device = _full(running.device_spec.to_string())
    if "GPU" not in device or is_soft(running):
        return
    listed = ", ".join(_full(each.name) for each in running.list_logical_devices())
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
