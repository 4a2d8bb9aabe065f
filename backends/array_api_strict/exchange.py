"""Copies of array-api-strict's arrays in NumPy, and memory shared with other frameworks."""

from typing import Any, TypeAlias

import array_api_strict as xp
import numpy as np
import numpy.typing as npt

from xdevice.backends.array_api_strict.hardware import native
from xdevice.contract import Tensor
from xdevice.device import Device

Array: TypeAlias = npt.NDArray[Any]
Exporter: TypeAlias = Any  # an object with ``__dlpack__``

CPU = native(Device("cpu", 0))


def to_numpy(tensor: Tensor) -> Array:
    return np.array(np.asarray(tensor.to_device(CPU)))


def export(tensor: Tensor) -> tuple[Exporter, bool] | None:
    array = np.asarray(tensor)  # without a copy
    # with negative strides, torch would abort the process, and Paddle read other memory
    if not array.size or min(array.strides, default=1) <= 0:
        return None
    return array, array.flags.writeable


def adopt(exporter: Exporter, writable: bool) -> Tensor | None:
    tensor = xp.from_dlpack(exporter)
    # the array is read-only if the source never changes
    if writable and not np.asarray(tensor).flags.writeable:
        return None
    return tensor
