"""CuPy arrays on the host."""

from typing import Any

import numpy as np


def to_numpy(tensor: Any) -> np.ndarray[Any, Any]:
    with tensor.device:  # whose current stream computes it
        array: np.ndarray[Any, Any] = tensor.get()
    return (
        array if array.flags.owndata else array.copy()
    )  # with CUPY_ENABLE_UMP it is the array's own memory
