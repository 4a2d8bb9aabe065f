"""Copies of NumPy arrays, and memory shared with other frameworks."""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from xdevice.contract import Tensor
from xdevice.errors import NotSupportedError

Array: TypeAlias = npt.NDArray[Any]
Exporter: TypeAlias = Any  # an object with ``__dlpack__``


def to_numpy(tensor: Tensor) -> Array:
    if np.ma.is_masked(tensor):
        raise NotSupportedError(
            "the mask of a masked array would be lost; fill it first with x.filled()"
        )
    return np.array(tensor)


def export(tensor: Tensor) -> tuple[Exporter, bool] | None:
    if type(tensor) is not np.ndarray or not tensor.size:
        return None
    if not tensor.dtype.isnative or tensor.dtype.kind not in "biufc":
        return None
    # with negative strides, torch would abort the process, and Paddle read other memory
    if min(tensor.strides, default=1) <= 0:
        return None
    return tensor, tensor.flags.writeable


def adopt(exporter: Exporter, writable: bool) -> Array | None:
    array = np.from_dlpack(exporter)
    # NumPy's array is read-only if the source never changes
    if writable and not array.flags.writeable:
        return None
    return array
