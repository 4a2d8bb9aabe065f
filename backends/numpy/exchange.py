"""Copies of NumPy arrays, and memory shared with other frameworks."""

from typing import Any

import numpy as np

from xdevice.errors import NotSupportedError


def to_numpy(tensor: Any) -> np.ndarray[Any, Any]:
    if np.ma.is_masked(tensor):
        raise NotSupportedError(
            "the mask of a masked array would be lost; fill it first with x.filled()"
        )
    return np.array(tensor)


def export(tensor: Any) -> tuple[Any, bool] | None:
    """Not with negative strides: torch would abort the process, and Paddle read other memory."""
    if type(tensor) is not np.ndarray or not tensor.size:
        return None
    if not tensor.dtype.isnative or tensor.dtype.kind not in "biufc":
        return None
    if min(tensor.strides, default=1) <= 0:
        return None
    return tensor, tensor.flags.writeable


def adopt(exporter: Any, writable: bool) -> Any:
    array = np.from_dlpack(exporter)
    # the array is read-only where the source never changes
    return array if array.flags.writeable or not writable else None
