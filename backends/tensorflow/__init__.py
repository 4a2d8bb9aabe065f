"""TensorFlow with Keras: the CPU, ``gpu`` (CUDA, ROCm, Apple, Intel), TPUs, and plug-in devices.

Surprises: TensorFlow keeps int32 and text of a GPU in host memory, and `device_of` says so, though
a move takes them to the GPU; `tf.Variable` moves into a new one, models in place; a logical device
must be asked for before the first tensor is made; TensorFlow takes nearly all GPU memory at first
use and never gives any back.

A virtual GPU is a logical CPU: ``gpu:1`` is ``/CPU:2``. What TensorFlow itself copies between
these, an operand or by `tf.identity`, shares memory; xdevice copies. An operation runs in the
scope, or outside any on the default device, wherever its operands are: `strict` raises, a
namespace's functions stay. Its gradient runs in the scope of `tape.gradient`; `value_and_grad`
computes it beside the operation. `strict` sees what a `tf.function` is given, not what it does
inside, and leaves a `tf.distribute` strategy alone within ``strategy.scope()``.
"""

from typing import Any

import tensorflow as tensorflow

from xdevice.backends.tensorflow.private_names import names
from xdevice.errors import XDeviceError

setattr(XDeviceError, "ag_pass_through", True)  # noqa: B010 - without it AutoGraph raises a StagingError in their place

# Rewriting xdevice takes a second of a function's first call; only what calls a function of the
# program needs it.
_calling = (
    "xdevice.contract",
    "xdevice.parallel",
    "xdevice.tensors.gradients",
    "xdevice.backends.tensorflow.gradients",
)
if names.has("functions of xdevice that AutoGraph leaves alone"):
    _rules: Any = names.module("tensorflow.python.autograph.core.config")
    _rules.CONVERSION_RULES = (
        *map(_rules.Convert, _calling),
        _rules.DoNotConvert("xdevice"),
        *_rules.CONVERSION_RULES,
    )

CANNOT: dict[str, str] = {"data": "every tensor counts as numbers"}


GPU_BUILD = "pip install --force-reinstall 'tensorflow[and-cuda]' on Linux; macOS needs tensorflow-metal beside it"
