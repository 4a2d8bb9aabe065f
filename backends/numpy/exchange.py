"""Copies of NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from xdevice.errors import NotSupportedError


def to_numpy(tensor: Any) -> np.ndarray[Any, Any]:
    if np.ma.is_masked(tensor):
        raise NotSupportedError("the mask of a masked array would be lost; fill it first with x.filled()")
    return np.array(tensor)
