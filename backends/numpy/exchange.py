"""NumPy arrays out of NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np


def to_numpy(tensor: Any) -> np.ndarray[Any, Any]:
    return np.array(tensor)
