"""The placement of array-api-strict's arrays."""

import array_api_strict as xp

from xdevice.backends.array_api_strict.hardware import as_device, native
from xdevice.contract import Category, Tensor
from xdevice.device import Device

# its classes of arrays and of dtypes have no public names
ARRAY = type(xp.empty(0))
_Dtype = type(xp.float64)


def category(cls: type) -> Category | None:
    if issubclass(cls, ARRAY):
        return "tensor"
    if issubclass(cls, xp.Device):
        return "device"
    return "data" if issubclass(cls, _Dtype) else None


def device_of(tensor: Tensor) -> Device:
    return as_device(tensor.device)


def move(tensor: Tensor, device: Device, non_blocking: bool) -> Tensor:
    return tensor.to_device(native(device))


def copy(tensor: Tensor) -> Tensor:
    return xp.asarray(tensor, copy=True)
