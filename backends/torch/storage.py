"""Raw bits of PyTorch tensors whose dtype NumPy lacks."""

import numpy as np
import numpy.typing as npt
import torch

from xdevice.backends.torch.hardware import native
from xdevice.device import Device
from xdevice.errors import UnknownPlacementError


def to_bits(tensor: torch.Tensor) -> npt.NDArray[np.uint8]:
    if tensor.device.type == "meta":
        raise UnknownPlacementError(
            "a tensor on meta:0 has a shape and no values; make it on a real device"
        )
    if not tensor.numel():
        # PyTorch may give it strides of 0, with which it has no view as bytes
        return np.empty(0, np.uint8)
    on_cpu = tensor.detach().cpu().contiguous()
    bits: npt.NDArray[np.uint8] = on_cpu.reshape(-1).view(torch.uint8).numpy()
    return bits


def from_bits(
    bits: npt.NDArray[np.uint8], shape: tuple[int, ...], dtype: torch.dtype, device: Device
) -> torch.Tensor:
    if not bits.size:
        return torch.empty(shape, dtype=dtype, device=native(device))
    copied = torch.tensor(bits, device="cpu")  # on the CPU in every scope
    return copied.view(dtype).reshape(shape).to(native(device))
