"""The memory of PyTorch tensors, and tensors on the memory of others."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.dlpack import from_dlpack


def export(tensor: Any) -> tuple[Any, bool] | None:
    """Plain tensors only: a subclass may hold its values elsewhere."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout is not torch.strided:
        return None
    if not tensor.numel() or tensor.is_quantized or tensor.is_conj() or tensor.is_neg() or tensor.is_inference():
        return None
    if any(stride == 0 and size > 1 for size, stride in zip(tensor.shape, tensor.stride(), strict=True)):
        return None  # expanded: several elements in one place
    return tensor.detach(), True


def adopt(exporter: Any, writable: bool) -> Any:
    return from_dlpack(exporter) if writable else None
