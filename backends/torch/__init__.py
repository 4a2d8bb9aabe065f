"""PyTorch: the CPU, and CUDA, ROCm, Intel XPU or Apple MPS devices as ``gpu``.

Surprises: ``torch.device("cpu:1")`` is silently the CPU; ``cuda`` without an index is the *current*
device; ``.to`` makes a plain tensor of a Parameter; ``non_blocking`` is safe only towards a GPU. Virtual
GPUs are torch's PrivateUse1 device, named ``vgpu``; `virtual` says how.
"""

import torch as torch

CANNOT: dict[str, str] = {}
"""What this framework cannot do, and why."""

GPU_BUILD = "pip install --force-reinstall torch on Linux; elsewhere choose CUDA on pytorch.org/get-started/locally"
"""What to type to get a build for GPUs."""
