"""PaddlePaddle tensors as NumPy arrays, and memory shared with other frameworks."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import paddle

from xdevice.backends.paddle.placement import dense, device_of, dtype_name
from xdevice.errors import NotSupportedError
from xdevice.kit import dlpack

FOREIGN = (
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
)  # NumPy lacks them: Paddle gives integers with the same bits


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


def export(tensor: Any) -> tuple[Any, bool] | None:
    device_of(tensor)  # raises if there are no values
    if not tensor.is_dense() or not tensor.size:
        return None
    # Paddle's own __dlpack_device__ is (enum, None), which JAX does not take
    on_cpu = {
        "__dlpack__": tensor.detach().__dlpack__,
        "__dlpack_device__": lambda: (dlpack.CPU, 0),
    }
    return SimpleNamespace(shape=tuple(tensor.shape), **on_cpu), True


def adopt(exporter: Any, writable: bool) -> Any:
    return paddle.utils.dlpack.from_dlpack(exporter.__dlpack__()) if writable else None
