"""Images with their channels first, for which most kernels of the CPU do not exist: their channels are put last.

The functions of ``gen_nn_ops`` and ``gen_array_ops`` are the border: gradients are those of what they record. What
calls kernels in another way, `tf.raw_ops` and graphs that were saved, is as on the CPU.
"""

from collections.abc import Callable
from inspect import signature
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import gen_array_ops, gen_nn_ops

IMAGES = {
    "input": "conv2d conv3d depthwise_conv2d_native max_pool max_pool3d avg_pool3d depth_to_space space_to_depth",
    "value": "avg_pool bias_add",
    "x": "fused_batch_norm_v2 fused_batch_norm_v3",
    "out_backprop": "conv2d_backprop_input conv3d_backprop_input_v2 depthwise_conv2d_native_backprop_input",
}
"""Operations with a ``data_format``, by the argument that is an image; the first of their results is one, too."""

CHANNELS_LAST = {"NCHW": "NHWC", b"NCHW": "NHWC", "NCDHW": "NDHWC", b"NCDHW": "NDHWC"}  # attributes are bytes
PER_AXIS = ("strides", "ksize", "dilations", "explicit_paddings", "input_sizes")


def start() -> None:
    """Let operations that are asked for channels first compute with channels last."""
    for image, operations in IMAGES.items():
        for name in operations.split():
            home = gen_nn_ops if hasattr(gen_nn_ops, name) else gen_array_ops
            setattr(home, name, _with_channels_last(getattr(home, name), image))


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
        rank = x.shape.rank
        if rank is None or rank < 3:
            return run(*args, **kwargs)
        last, first = [0, *range(2, rank), 1], [0, rank - 1, *range(1, rank - 1)]
        values[image] = tf.transpose(x, last)
        for word in PER_AXIS:
            if values.get(word) is not None and len(values[word]):
                values[word] = _reordered(values[word], last)
        values["data_format"] = CHANNELS_LAST[asked]
        made = run(*given.args, **given.kwargs)
        is_one = isinstance(made, tf.Tensor)  # else a named tuple
        return tf.transpose(made, first) if is_one else type(made)(tf.transpose(made[0], first), *made[1:])

    return call


def _reordered(values: Any, order: list[int]) -> Any:
    if isinstance(values, tf.Tensor):
        return tf.gather(values, order)
    if len(values) == 2 * len(order):  # two numbers for each axis
        return [values[2 * axis + side] for axis in order for side in (0, 1)]
    return [values[axis] for axis in order]
