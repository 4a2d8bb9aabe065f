"""MXNet's arrays out of MXNet."""

from typing import Any

import numpy as np

from xdevice.backends.mxnet.placement import arrays
from xdevice.errors import NotSupportedError


def to_numpy(tensor: Any) -> np.ndarray[Any, Any]:
    values: np.ndarray[Any, Any] = arrays(tensor)[0].asnumpy()  # a parameter's copies are equal
    if values.dtype.names:  # MXNet gives bfloat16 as a record of two bytes
        raise NotSupportedError(
            f"NumPy has no {values.dtype.names[0]}; convert it first with .astype('float32')"
        )
    return values
