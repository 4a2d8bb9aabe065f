"""Where the kernels of GPUs and of the CPU differ.

TensorFlow has kernels for the CPU only of some operations (text, images, sets, and others), and of
some dtypes of others. It places these on the CPU, or refuses them without soft placement; so does
this module. It checks an eager operation when it is run, one of a function's graph when it is
created, and one of a session's graph when the session is run.
Tensors of strings are on the CPU, whichever operation returns them.

The CPU lacks most kernels for images with their channels first, so the channels are moved last. The
functions of ``gen_nn_ops`` and ``gen_array_ops`` do that; gradients are those of the operations
that they record. `tf.raw_ops` and saved graphs call kernels in another way, and behave as on the
CPU.
"""

from inspect import BoundArguments, signature
from typing import Any
from weakref import WeakKeyDictionary

import tensorflow as tf

from xdevice.backends.tensorflow.cpu_only import is_lacking, is_lacking_for
from xdevice.backends.tensorflow.private_names import runtime
from xdevice.contract import Tensor
from xdevice.virtual.tensorflow.private_names import (
    Context,
    DeviceName,
    Error,
    Function,
    Graph,
    Operation,
    Replacements,
    Session,
    context,
    names,
)

IMAGES = {
    "input": """
        conv2d conv3d depthwise_conv2d_native max_pool max_pool3d avg_pool3d
        depth_to_space space_to_depth
    """,
    "value": "avg_pool bias_add",
    "x": "fused_batch_norm_v2 fused_batch_norm_v3",
    "out_backprop": """
        conv2d_backprop_input conv3d_backprop_input_v2 depthwise_conv2d_native_backprop_input
    """,
}
"""Operations with a ``data_format``, by the argument that is an image.

Their first result is an image, too.
"""

# attributes are strings or bytes
CHANNELS_LAST = {"NCHW": "NHWC", b"NCHW": "NHWC", "NCDHW": "NDHWC", b"NCDHW": "NDHWC"}
PER_AXIS = ("strides", "ksize", "dilations", "explicit_paddings", "input_sizes")

_HOST = "CPU:0"
_DEVICE = "tensorflow.python.framework.ops:EagerTensor.device"
_IN_ARRAY_OPS = "depth_to_space", "space_to_depth"
_replacements = Replacements()
_refusals: WeakKeyDictionary[Graph, str] = WeakKeyDictionary()
"""Why a session without soft placement refuses a graph, by the graph."""


def start(lenient: bool) -> None:
    """Move channels last and, unless lenient, run operations that GPUs lack on the CPU."""
    if names.has("images with their channels first"):
        _move_channels_last()
    if not lenient:
        _replacements.apply()
        _show_strings_on_the_cpu()


def _move_channels_last() -> None:
    for image, operations in IMAGES.items():
        for name in operations.split():
            module = "gen_array_ops" if name in _IN_ARRAY_OPS else "gen_nn_ops"
            path = f"tensorflow.python.ops.{module}:{name}"
            names.replace(path, _with_channels_last(names.value(path), image))


def _show_strings_on_the_cpu() -> None:
    native_device = names.value(_DEVICE).fget

    def device(tensor: Tensor) -> DeviceName:
        name = native_device(tensor)
        if tensor.dtype != tf.string:
            return name
        return f"{name.rpartition('device:')[0]}device:{_HOST}"

    names.replace(_DEVICE, property(device))


@_replacements("tensorflow.python.pywrap_tfe:TFE_Py_FastPathExecute")
def _execute_eagerly(
    native: Function, running: Context, operation: str, name: object, *args: object
) -> Any:
    if running.device_spec.device_type == "CPU" or not is_lacking(operation, args):
        return native(running, operation, name, *args)
    _check_soft_placement(operation)
    with context.device(_HOST):
        return native(running, operation, name, *args)


@_replacements("tensorflow.python.pywrap_tfe:TFE_Py_Execute")
@_replacements("tensorflow.python.pywrap_tfe:TFE_Py_ExecuteCancelable")
def _execute_with_tensors(  # noqa: PLR0913, PLR0917  (TensorFlow's signature)
    native: Function,
    handle: object,
    device: DeviceName,
    operation: str | bytes,
    inputs: object,
    attributes: Any,
    *more: object,
) -> Any:
    """TensorFlow's slow path: the arguments are tensors already, and ``attributes`` has all of them.

    The names and the values of the attributes alternate.
    """
    name = operation if isinstance(operation, str) else operation.decode()
    values = {}
    if attributes:
        values = dict(zip(attributes[::2], attributes[1::2], strict=True))
    if runtime().device_spec.device_type != "CPU" and is_lacking_for(name, values.__getitem__):
        _check_soft_placement(name)
        device = f"/device:{_HOST}"
    return native(handle, device, operation, inputs, attributes, *more)


@_replacements("tensorflow.python.framework.ops:Graph._create_op_helper")
def _create_in_graph(
    native: Function, self: Graph, operation: Operation, compute_device: bool = True
) -> None:
    native(self, operation, compute_device)
    device = operation.device
    if not compute_device or f"/device:{_HOST}" in device:
        return
    if not is_lacking_for(operation.type, operation.get_attr):
        return
    if "GPU" in device:
        message = (
            f"Cannot assign a device for operation {operation.name}: "
            f"Could not satisfy explicit device specification '{device}' "
            "because no supported kernel for GPU devices is available."
        )
        if not self.building_function:
            _refusals.setdefault(self, message)
        elif not is_soft(runtime()):
            raise tf.errors.InvalidArgumentError(operation.node_def, operation, message)
    spec = tf.DeviceSpec.from_string(device).replace(device_type="CPU", device_index=0)
    operation._set_device(spec.to_string())


@_replacements("tensorflow.python.client.session:BaseSession._extend_graph")
def _place(native: Function, self: Session) -> None:
    """Give the runtime the graph of a session, whose own configuration says if placement is soft."""
    if self.graph in _refusals and not (self._config and self._config.allow_soft_placement):
        raise tf.errors.InvalidArgumentError(None, None, _refusals[self.graph])
    native(self)


def is_soft(running: Context) -> bool:
    """Whether placement is soft.

    TensorFlow's public function gives another result while a function is traced.
    """
    return running._soft_device_placement is not False


def _check_soft_placement(operation: str) -> None:
    """Raise TensorFlow's error if an eager operation that GPUs lack must run on a GPU."""
    running = runtime()
    device = _full_name(running.device_spec.to_string())
    if "GPU" in device and not is_soft(running):
        devices = [_full_name(logical.name) for logical in running.list_logical_devices()]
        raise unsatisfied(device, "CPU", devices, f" [Op:{operation}]")


def unsatisfied(device: str, kinds: str, devices: list[str], end: str = "") -> Error:
    """TensorFlow's error for a device that cannot be used; ``devices`` are those that exist."""
    request = f"Could not satisfy device specification '{device}'. enable_soft_placement=0."
    choices = f"Supported device types [{kinds}]. All available devices [{', '.join(devices)}]."
    return tf.errors.InvalidArgumentError(None, None, f"{request} {choices}{end}")


def _full_name(device: str) -> str:
    return device if "/job:" in device else f"/job:localhost/replica:0/task:0{device}"


def _with_channels_last(native: Function, image: str) -> Function:
    parameters = signature(native)
    position = list(parameters.parameters).index("data_format")

    def call(*args: Any, **kwargs: Any) -> Any:
        data_format = args[position] if len(args) > position else kwargs.get("data_format")
        if data_format not in CHANNELS_LAST:
            return native(*args, **kwargs)
        arguments = parameters.bind(*args, **kwargs)
        arguments.apply_defaults()
        x = tf.convert_to_tensor(arguments.arguments[image])
        rank = x.shape.rank or 0
        if rank < 3:
            return native(*args, **kwargs)
        channels_last = [0, *range(2, rank), 1]
        channels_first = [0, rank - 1, *range(1, rank - 1)]
        arguments.arguments[image] = tf.transpose(x, channels_last)
        _reorder_axes(arguments, channels_last)
        arguments.arguments["data_format"] = CHANNELS_LAST[data_format]
        result = native(*arguments.args, **arguments.kwargs)
        if isinstance(result, tf.Tensor):
            return tf.transpose(result, channels_first)
        # a named tuple
        return type(result)(tf.transpose(result[0], channels_first), *result[1:])

    return call


def _reorder_axes(arguments: BoundArguments, order: list[int]) -> None:
    """Reorder the arguments that have a number for each axis."""
    values = arguments.arguments
    for name in PER_AXIS:
        if values.get(name) is not None and len(values[name]):
            values[name] = _reordered(values[name], order)


def _reordered(values: Any, order: list[int]) -> Any:
    if isinstance(values, tf.Tensor):
        return tf.gather(values, order)
    if len(values) == 2 * len(order):  # two numbers for each axis
        return [values[2 * axis + side] for axis in order for side in (0, 1)]
    return [values[axis] for axis in order]
