"""Which of NumPy's arrays are plain data: scalars, and arrays of text, dates and objects."""

from __future__ import annotations

from typing import Any

import numpy as np


def is_data(tensor: Any) -> bool:
    return not isinstance(tensor, np.ndarray) or tensor.dtype.kind not in "biufcV"
