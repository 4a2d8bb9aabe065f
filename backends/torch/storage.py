"""Raw bits of PyTorch tensors whose dtype NumPy lacks."""

from typing import Any

import numpy as np
import torch

from xdevice.backends.torch.hardware import native
from xdevice.device import Device
from xdevice.errors import UnknownPlacementError


def to_bits(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    if tensor.device.type == "meta":
        raise UnknownPlacementError(
            "a tensor on meta:0 has a shape and no values; make it on a real device"
        )
    found: np.ndarray[Any, Any] = (
        tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    )
    return found


def from_bits(
    bits: np.ndarray[Any, Any], shape: tuple[int, ...], dtype: Any, device: Device
) -> torch.Tensor:
    made = (
        torch.tensor(bits, device="cpu").view(dtype).reshape(shape)
    )  # a copy, on the CPU in every scope
    return made.to(native(device))
