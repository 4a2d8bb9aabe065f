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
    """Copy on the other device's stream.

    It waits for what the tensor's stream computes, and that stream waits for the copy.
    """
    with tensor.device:
        source = cupy.asarray(tensor, order="C")  # here: the event is recorded after it
        source_stream = cupy.cuda.get_current_stream()
        is_ready = source_stream.record()
    with native(device):
        stream = cupy.cuda.get_current_stream()
        stream.wait_event(is_ready)
        moved = source.copy()
        is_copied = stream.record()
        if not non_blocking:
            stream.synchronize()
    with tensor.device:
        source_stream.wait_event(is_copied)
    return moved


def copy(tensor: Any) -> Any:
    with tensor.device:  # else it would be on the current device
        return tensor.copy()
