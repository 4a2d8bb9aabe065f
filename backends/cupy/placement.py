"""The placement of CuPy arrays."""

from functools import cache, partial
from typing import Any

import cupy

from xdevice.backends.cupy.hardware import native
from xdevice.contract import Category
from xdevice.device import Device

_gpu = cache(partial(Device, "gpu"))  # by index: creating a Device takes longer than reading it


def category(cls: type) -> Category | None:
    if issubclass(cls, cupy.ndarray):
        return "tensor"
    if issubclass(cls, cupy.cuda.Device):
        return "device"
    return None  # CuPy's dtypes and scalars are NumPy's


def device_of(tensor: Any) -> Device:
    return _gpu(tensor.device.id)


def move(tensor: Any, device: Device, non_blocking: bool) -> Any:
    if not non_blocking:
        # the copy is on a stream of the other device and would not wait for this one
        with tensor.device:
            cupy.cuda.get_current_stream().synchronize()
    with native(device):
        moved = tensor.copy()
        if not non_blocking:
            cupy.cuda.get_current_stream().synchronize()
    return moved


def copy(tensor: Any) -> Any:
    with tensor.device:  # else it would be on the current device
        return tensor.copy()
