"""CuPy arrays on the host."""

from typing import Any, TypeAlias

import cupy
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]


def to_numpy(tensor: cupy.ndarray) -> Array:
    with tensor.device:  # its current stream computes the tensor
        array: Array = tensor.get()
    # with CUPY_ENABLE_UMP, `get` returns the tensor's own memory
    if not array.flags.owndata:
        array = array.copy()
    return array
