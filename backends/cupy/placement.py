"""The placement of CuPy arrays."""

from functools import cache, partial
from typing import Any

import cupy

from xdevice.backends.cupy.hardware import native
from xdevice.contract import Role
from xdevice.device import Device

_gpu = cache(partial(Device, "gpu"))  # by its number; making one takes longer than asking the array


def role(cls: type) -> Role | None:
    if issubclass(cls, cupy.ndarray):
        return "tensor"
    return (
        "device" if issubclass(cls, cupy.cuda.Device) else None
    )  # its dtypes and scalars are NumPy's


def device_of(tensor: Any) -> Device:
    return _gpu(tensor.device.id)


def move(tensor: Any, device: Device, non_blocking: bool) -> Any:
    if not non_blocking:
        with (
            tensor.device
        ):  # what computes its numbers is queued there, and the copy on the other device's stream
            cupy.cuda.get_current_stream().synchronize()
    with native(device):
        moved = tensor.copy()
        if not non_blocking:
            cupy.cuda.get_current_stream().synchronize()
    return moved


def copy(tensor: Any) -> Any:
    with tensor.device:  # else it would be on the current device
        return tensor.copy()
