"""PyTorch: the CPU, and CUDA, ROCm, Intel XPU or Apple MPS devices as ``gpu``.

Notes: ``torch.device("cpu:1")`` means the CPU, without an error. ``cuda`` without an index is the
current device. ``.to`` turns a Parameter into a plain tensor. ``non_blocking`` is safe only for
copies to a GPU. Under `torch.compile` the first use of xdevice breaks the graph,
and so does a factory without ``device=`` once the program has entered a scope, which is in a
``ContextVar``. With ``fullgraph=True``, call `device_of` and a factory before compiling.
"""

import torch as torch

CANNOT: dict[str, str] = {}

GPU_BUILD = (
    "pip install --force-reinstall torch on Linux; "
    "elsewhere choose CUDA on pytorch.org/get-started/locally"
)
