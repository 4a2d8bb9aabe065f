"""The placement of NumPy arrays: always the CPU. Scalars, and arrays of text, dates and objects, are plain data."""

from typing import Any

import numpy as np

from xdevice.contract import Category
from xdevice.device import Device

_CPU = Device("cpu", 0)


def category(cls: type) -> Category | None:
    if issubclass(cls, (np.ndarray, np.number, np.bool_)):
        return "tensor"
    if issubclass(cls, (np.generic, np.dtype)):  # also scalars of text and dates
        return "data"
    # random generators, by name: NumPy may not have imported their module
    return "data" if str(cls.__module__).startswith("numpy.random.") else None


def device_of(tensor: Any) -> Device:
    return _CPU


def move(tensor: Any, device: Device, non_blocking: bool) -> Any:
    return tensor  # there is only one device


def copy(tensor: Any) -> Any:
    return tensor.copy()


def is_data(tensor: Any) -> bool:
    return not isinstance(tensor, np.ndarray) or tensor.dtype.kind not in "biufcV"
