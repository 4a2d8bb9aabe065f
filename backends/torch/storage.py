"""The bits of numbers that NumPy lacks, under PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from xdevice.backends.torch.hardware import native

if TYPE_CHECKING:
    import numpy as np

    from xdevice.device import Device


def to_bits(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    found: np.ndarray[Any, Any] = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return found


def from_bits(bits: np.ndarray[Any, Any], shape: tuple[int, ...], dtype: Any, device: Device) -> torch.Tensor:
    made = torch.tensor(bits, device="cpu").view(dtype).reshape(shape)  # copied, and wherever a scope may be
    return made.to(native(device))
