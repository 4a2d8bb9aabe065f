"""tinygrad under xdevice: CPU is the CPU, and another default device (``DEV=WEBGPU``) the GPU.

Notes: native devices are strings (``CPU``, ``WEBGPU:1``). Tensors are lazy: one without a buffer is a recipe, on its
device. tinygrad does not count its GPUs: ``TINYGRAD_GPUS`` does, else there is one. tinygrad needs clang for its CPU.
"""

import tinygrad  # noqa: F401  (importing the adapter imports the framework)

CANNOT = {
    "models": "tinygrad has no class of models; use a tree of tensors, such as tinygrad.nn.state.get_state_dict(model)",
    "mixing": "tinygrad computes later, and refuses several devices only then",
}
