"""PaddlePaddle tensors as NumPy arrays, and memory shared with other frameworks."""

from typing import Any

import numpy as np
import paddle

from xdevice.backends.paddle.placement import dense, device_of, dtype_name
from xdevice.errors import NotSupportedError

FOREIGN = ("bfloat16", "float8_e4m3fn", "float8_e5m2")
"""Dtypes that NumPy lacks. Paddle converts them to and from integers with the same bits."""


def to_numpy(tensor: Any) -> np.ndarray[Any, Any]:
    device_of(tensor)  # raises if there are no values
    array: np.ndarray[Any, Any] = dense(tensor).numpy()  # a copy
    dtype = dtype_name(tensor)
    if dtype not in FOREIGN:
        return array
    try:
        import ml_dtypes
    except ModuleNotFoundError as error:
        hint = "convert it first with .astype('float32'), or pip install ml_dtypes"
        raise NotSupportedError(f"NumPy has no {dtype}; {hint}") from error
    return array.view(getattr(ml_dtypes, dtype))


class _Exporter:
    """A tensor's memory; Paddle's own ``__dlpack_device__`` is ``(enum, None)``, which JAX does not take."""

    def __init__(self, tensor: Any) -> None:
        self._tensor, self.shape = tensor, tuple(tensor.shape)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0  # the CPU

    def __dlpack__(self, **asked: Any) -> Any:
        return self._tensor.__dlpack__(**asked)


def export(tensor: Any) -> tuple[Any, bool] | None:
    device_of(tensor)  # raises if there are no values
    return (_Exporter(tensor.detach()), True) if tensor.is_dense() and tensor.size else None


def adopt(exporter: Any, writable: bool) -> Any:
    return paddle.utils.dlpack.from_dlpack(exporter.__dlpack__()) if writable else None
