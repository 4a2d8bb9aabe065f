"""CuPy arrays on the host."""

from typing import Any

import numpy as np


def to_numpy(tensor: Any) -> np.ndarray[Any, Any]:
    with tensor.device:  # its current stream computes the tensor
        array: np.ndarray[Any, Any] = tensor.get()
    # with CUPY_ENABLE_UMP, `get` returns the tensor's own memory
    return array if array.flags.owndata else array.copy()
