"""Where the kernels of GPUs and of the CPU differ.

Operations, and dtypes of others, that only the CPU has (text, images, sets, and others) are placed
as TensorFlow places them: on the CPU, or refused without soft placement. An eager operation is
looked at where it is run, one of a graph where it is made. What is text is on the CPU, whatever
made it.

Images with their channels first, for which the CPU lacks most kernels, get their channels put last.
The functions of ``gen_nn_ops`` and ``gen_array_ops`` are the border: gradients are those of what
they record. What calls kernels in another way, `tf.raw_ops` and graphs that were saved, is as on
the CPU.
"""

from collections.abc import Callable
from inspect import signature
from typing import Any

import tensorflow as tf

from xdevice.backends.tensorflow.cpu_only import is_lacking, is_lacking_for
from xdevice.backends.tensorflow.private_names import runtime
from xdevice.virtual.tensorflow.private_names import Replacements, context, names

IMAGES = {
    "input": "conv2d conv3d depthwise_conv2d_native max_pool max_pool3d avg_pool3d depth_to_space space_to_depth",
    "value": "avg_pool bias_add",
    "x": "fused_batch_norm_v2 fused_batch_norm_v3",
    "out_backprop": "conv2d_backprop_input conv3d_backprop_input_v2 depthwise_conv2d_native_backprop_input",
}
"""Operations with a ``data_format``, by the argument that is an image; the first of their results is one, too."""

CHANNELS_LAST = {
    "NCHW": "NHWC",
    b"NCHW": "NHWC",
    "NCDHW": "NDHWC",
    b"NCDHW": "NDHWC",
}  # attributes are bytes
PER_AXIS = ("strides", "ksize", "dilations", "explicit_paddings", "input_sizes")

_HOST = "CPU:0"
_DEVICE = "tensorflow.python.framework.ops:EagerTensor.device"
_OF_SPACE = "depth_to_space", "space_to_depth"
_replacements = Replacements()


def start(lenient: bool) -> None:
    """Put channels last and, unless lenient, what GPUs lack on the CPU."""
    has_images = names.has("images with their channels first")
    for image, operations in IMAGES.items() if has_images else ():
        for name in operations.split():
            path = f"tensorflow.python.ops.{'gen_array_ops' if name in _OF_SPACE else 'gen_nn_ops'}:{name}"
            names.replace(path, _with_channels_last(names.value(path), image))
    if lenient:
        return
    _replacements.apply()
    shown = names.value(_DEVICE).fget

    def device(tensor: Any) -> Any:
        where = shown(tensor)
        return (
            where
            if tensor.dtype != tf.string
            else where.rpartition("device:")[0] + f"device:{_HOST}"
        )

    names.replace(_DEVICE, property(device))


@_replacements("tensorflow.python.pywrap_tfe:TFE_Py_FastPathExecute")
def _eager(run: Callable[..., Any], running: Any, operation: str, name: Any, *args: Any) -> Any:
    if running.device_spec.device_type == "CPU" or not is_lacking(operation, args):
        return run(running, operation, name, *args)
    _refuse(operation)
    with context.device(_HOST):
        return run(running, operation, name, *args)


@_replacements("tensorflow.python.pywrap_tfe:TFE_Py_Execute")
@_replacements("tensorflow.python.pywrap_tfe:TFE_Py_ExecuteCancelable")
def _from_tensors(  # noqa: PLR0913, PLR0917  (TensorFlow's signature)
    run: Callable[..., Any],
    handle: Any,
    device: Any,
    operation: Any,
    inputs: Any,
    attributes: Any,
    *rest: Any,
) -> Any:
    """The long way, for arguments that were made tensors; all attributes are given."""
    name = operation if isinstance(operation, str) else operation.decode()
    given = dict(zip(attributes[::2], attributes[1::2], strict=True)) if attributes else {}
    if runtime().device_spec.device_type != "CPU" and is_lacking_for(name, given.__getitem__):
        _refuse(name)
        device = f"/device:{_HOST}"
    return run(handle, device, operation, inputs, attributes, *rest)


@_replacements("tensorflow.python.framework.ops:Graph._create_op_helper")
def _in_graph(
    create: Callable[..., Any], self: Any, operation: Any, compute_device: bool = True
) -> None:
    create(self, operation, compute_device)
    where = operation.device
    if (
        not compute_device
        or f"/device:{_HOST}" in where
        or not is_lacking_for(operation.type, operation.get_attr)
    ):
        return
    if "GPU" in where and not is_soft(runtime()):
        said = (
            f"Cannot assign a device for operation {operation.name}: Could not satisfy explicit device specification "
            f"'{where}' because no supported kernel for GPU devices is available."
        )
        raise tf.errors.InvalidArgumentError(operation.node_def, operation, said)
    spec = tf.DeviceSpec.from_string(where).replace(device_type="CPU", device_index=0)
    operation._set_device(spec.to_string())


def is_soft(running: Any) -> bool:
    """Whether placement is soft; while a function is traced, TensorFlow itself answers otherwise."""
    return running._soft_device_placement is not False


def _refuse(operation: str) -> None:
    """Raise TensorFlow's error for an eager operation that was asked to run on a GPU, without soft placement."""
    now = runtime()
    device = _full(now.device_spec.to_string())
    if "GPU" in device and not is_soft(now):
        listed = [_full(each.name) for each in now.list_logical_devices()]
        raise unsatisfied(device, "CPU", listed, f" [Op:{operation}]")


def unsatisfied(device: str, kinds: str, listed: list[str], end: str = "") -> Any:
    said = f"Could not satisfy device specification '{device}'. enable_soft_placement=0."
    known = f"Supported device types [{kinds}]. All available devices [{', '.join(listed)}]."
    return tf.errors.InvalidArgumentError(None, None, f"{said} {known}{end}")


def _full(device: str) -> str:
    return device if "/job:" in device else f"/job:localhost/replica:0/task:0{device}"


def _with_channels_last(run: Callable[..., Any], image: str) -> Callable[..., Any]:
    parameters = signature(run)
    at = list(parameters.parameters).index("data_format")

    def call(*args: Any, **kwargs: Any) -> Any:
        asked = args[at] if len(args) > at else kwargs.get("data_format")
        if asked not in CHANNELS_LAST:
            return run(*args, **kwargs)
        given = parameters.bind(*args, **kwargs)
        given.apply_defaults()
        values = given.arguments
        x = tf.convert_to_tensor(values[image])
        if (rank := x.shape.rank or 0) < 3:
            return run(*args, **kwargs)
        last, first = [0, *range(2, rank), 1], [0, rank - 1, *range(1, rank - 1)]
        values[image] = tf.transpose(x, last)
        for word in PER_AXIS:
            if values.get(word) is not None and len(values[word]):
                values[word] = _reordered(values[word], last)
        values["data_format"] = CHANNELS_LAST[asked]
        made = run(*given.args, **given.kwargs)
        is_one = isinstance(made, tf.Tensor)  # else a named tuple
        return (
            tf.transpose(made, first)
            if is_one
            else type(made)(tf.transpose(made[0], first), *made[1:])
        )

    return call


def _reordered(values: Any, order: list[int]) -> Any:
    if isinstance(values, tf.Tensor):
        return tf.gather(values, order)
    if len(values) == 2 * len(order):  # two numbers for each axis
        return [values[2 * axis + side] for axis in order for side in (0, 1)]
    return [values[axis] for axis in order]
