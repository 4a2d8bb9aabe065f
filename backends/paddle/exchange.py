"""PaddlePaddle tensors as NumPy arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xdevice.backends.paddle.placement import dense, device_of
from xdevice.errors import NotSupportedError

if TYPE_CHECKING:
    import numpy as np

FOREIGN = ("bfloat16", "float8_e4m3fn", "float8_e5m2")
"""Dtypes that NumPy lacks. Paddle converts them to and from integers with the same bits."""


def to_numpy(tensor: Any) -> np.ndarray[Any, Any]:
    device_of(tensor)  # raises if there are no values
    array: np.ndarray[Any, Any] = dense(tensor).numpy()  # a copy
    dtype = str(tensor.dtype).removeprefix("paddle.")
    return array.view(_foreign(dtype)) if dtype in FOREIGN else array


def _foreign(dtype: str) -> Any:
    try:
        import ml_dtypes
    except ModuleNotFoundError as error:
        raise NotSupportedError(
            f"NumPy has no {dtype}; convert it first with .astype('float32'), or pip install ml_dtypes"
        ) from error
    return getattr(ml_dtypes, dtype)
