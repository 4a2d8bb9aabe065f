"""TensorFlow with Keras: the CPU, ``gpu`` (CUDA, ROCm, Apple, Intel), TPUs, and plug-in devices.

Notes: TensorFlow keeps int32 and text of a GPU in host memory, which is what
`device_of` reports, though a move takes them to the GPU. Moving a
`tf.Variable` makes a new one; models are moved in place. Logical devices must
be configured before the first tensor is made. TensorFlow takes nearly all GPU
memory at first use, and keeps it until the process ends.

A virtual GPU is a logical CPU: ``gpu:1`` is ``/CPU:2``. Copies that TensorFlow
itself makes between logical CPUs, of an operand or by `tf.identity`, share
memory; xdevice copies. An operation runs in the scope, or on the default
device outside any scope, wherever its operands are. `strict` raises an error
for that, and a namespace's functions run beside their operands. The gradient
of an operation runs in the scope of `tape.gradient`; `value_and_grad` computes
it beside the operation. `strict` checks the arguments of a `tf.function`, and
not the operations inside it. It does not check a `tf.distribute` strategy
within ``strategy.scope()``.
"""

from typing import Any

import tensorflow as tensorflow

from xdevice.backends.tensorflow.private_names import names
from xdevice.errors import XDeviceError

# Without this attribute AutoGraph raises a StagingError in place of xdevice's errors
setattr(XDeviceError, "ag_pass_through", True)  # noqa: B010  (the class does not declare it)

# AutoGraph would rewrite xdevice in a function's first call, which takes a second. Only modules
# that call functions of the program need it.
_calling_modules = (
    "xdevice.contract",
    "xdevice.parallel",
    "xdevice.tensors.gradients",
    "xdevice.backends.tensorflow.gradients",
)
if names.has("functions of xdevice that AutoGraph leaves alone"):
    _rules: Any = names.module("tensorflow.python.autograph.core.config")
    _rules.CONVERSION_RULES = (
        *map(_rules.Convert, _calling_modules),
        _rules.DoNotConvert("xdevice"),
        *_rules.CONVERSION_RULES,
    )

CANNOT: dict[str, str] = {"is_data": "every tensor counts as numbers"}

GPU_BUILD = (
    "pip install --force-reinstall 'tensorflow[and-cuda]' on Linux; "
    "macOS needs tensorflow-metal beside it"
)
