"""TensorFlow with Keras: the CPU, ``gpu`` (CUDA, ROCm, Apple, Intel), TPUs, and plug-in devices.

Surprises: an int32 result of a GPU stays in host memory and is told as such, though moving it takes
it there; `tf.Variable` moves into a new one, models in place; logical CPUs share one memory, so a
move between them copies nothing; a logical device must be asked for before the first tensor is
made; TensorFlow takes nearly all GPU memory at first use and never gives any back.
"""

import tensorflow as tensorflow

CANNOT: dict[str, str] = {}
"""What this framework cannot do, and why."""

GPU_BUILD = "pip install --force-reinstall 'tensorflow[and-cuda]' on Linux; macOS needs tensorflow-metal beside it"
"""What to type to get a build for GPUs."""
