"""TensorFlow with Keras: the CPU, ``gpu`` (CUDA, ROCm, Apple, Intel), TPUs, and plug-in devices.

Surprises: an int32 or text of a GPU stays in host memory and is told as such, though moving it takes
it there; `tf.Variable` moves into a new one, models in place; a logical device must be asked for before
the first tensor is made; TensorFlow takes nearly all GPU memory at first use and never gives any back.

A virtual GPU is a logical CPU: ``gpu:1`` is ``/CPU:2``. What TensorFlow itself copies between these, an
operand or by `tf.identity`, shares memory; what xdevice moves has its own. An operation runs in the scope,
wherever its operands are, and its gradient in the scope of `tape.gradient`; `value_and_grad` computes it
beside the operation. `strict` sees what a `tf.function` is given, not what it does inside, and leaves a
`tf.distribute` strategy alone within ``strategy.scope()``.
"""

import tensorflow as tensorflow

CANNOT: dict[str, str] = {
    "data": "every tensor counts as numbers",
    "trees": "TensorFlow keeps no registry of containers; register a class with optree",
}
"""What this framework cannot do, and why."""

GPU_BUILD = "pip install --force-reinstall 'tensorflow[and-cuda]' on Linux; macOS needs tensorflow-metal beside it"
"""What to type to get a build for GPUs."""
