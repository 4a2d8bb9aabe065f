"""Where tensors are, and moving them."""

from tinygrad import Tensor
from tinygrad.dtype import DType

from xdevice import UnknownPlacementError
from xdevice_tinygrad import hardware


def category(cls):
    if issubclass(cls, Tensor):
        return "tensor"
    return "data" if issubclass(cls, DType) else None


def device_of(tensor):
    if tensor.device is None:
        raise UnknownPlacementError(
            "the tensor is a constant, which has no device; give it one with x.contiguous()"
        )
    if not isinstance(tensor.device, str):
        raise UnknownPlacementError(
            f"the tensor is in parts on {tensor.device}; gather it with x.to(device)"
        )
    return hardware.device_named(tensor.device)


def move(tensor, device, non_blocking):
    return tensor.to(hardware.native(device)).realize()


def copy(tensor):
    return tensor.clone().realize()
