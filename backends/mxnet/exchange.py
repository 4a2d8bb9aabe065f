"""MXNet's arrays as NumPy arrays."""

from typing import Any, TypeAlias

import numpy as np

from xdevice.backends.mxnet.placement import arrays
from xdevice.contract import Tensor
from xdevice.errors import NotSupportedError

Array: TypeAlias = np.ndarray[Any, Any]


def to_numpy(tensor: Tensor) -> Array:
    values: Array = arrays(tensor)[0].asnumpy()  # a parameter's copies are equal
    if values.dtype.names:  # MXNet gives bfloat16 as a record of two bytes
        raise NotSupportedError(
            f"NumPy has no {values.dtype.names[0]}; convert it first with .astype('float32')"
        )
    return values
