"""The memory of NumPy arrays, and arrays on the memory of others."""

from __future__ import annotations

from typing import Any

import numpy as np


def export(tensor: Any) -> tuple[Any, bool] | None:
    """Not with negative strides: torch would abort the process, and Paddle read other memory."""
    plain = type(tensor) is np.ndarray and tensor.size and tensor.dtype.isnative and tensor.dtype.kind in "biufc"
    if not plain or min(tensor.strides, default=1) <= 0:
        return None
    return tensor, tensor.flags.writeable


def adopt(exporter: Any, writable: bool) -> Any:
    made = np.from_dlpack(exporter)
    return made if made.flags.writeable or not writable else None  # read-only where the source never changes
