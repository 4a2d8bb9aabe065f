"""TensorFlow with Keras: the CPU, ``gpu`` (CUDA, ROCm, Apple, Intel), TPUs, and plug-in devices.

Surprises: TensorFlow keeps int32 and text of a GPU in host memory, and `device_of` says so, though a move takes
them to the GPU; `tf.Variable` moves into a new one, models in place; a logical device must be asked for before
the first tensor is made; TensorFlow takes nearly all GPU memory at first use and never gives any back.

A virtual GPU is a logical CPU: ``gpu:1`` is ``/CPU:2``. What TensorFlow itself copies between these, an
operand or by `tf.identity`, shares memory; xdevice copies. An operation runs in the scope,
wherever its operands are, and its gradient in the scope of `tape.gradient`; `value_and_grad` computes it
beside the operation. `strict` sees what a `tf.function` is given, not what it does inside, and leaves a
`tf.distribute` strategy alone within ``strategy.scope()``.
"""

import tensorflow as tensorflow

from xdevice.errors import XDeviceError

setattr(XDeviceError, "ag_pass_through", True)  # noqa: B010 - without it AutoGraph raises a StagingError in their place

CANNOT: dict[str, str] = {"data": "every tensor counts as numbers"}
"""What this framework cannot do, and why."""

GPU_BUILD = "pip install --force-reinstall 'tensorflow[and-cuda]' on Linux; macOS needs tensorflow-metal beside it"
"""What to type to get a build for GPUs."""
