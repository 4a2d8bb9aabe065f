"""PaddlePaddle tensors as NumPy arrays, and memory shared with other frameworks."""

from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy as np
import paddle

from xdevice.backends.kit import dlpack
from xdevice.backends.paddle.placement import dense, device_of, dtype_name
from xdevice.contract import Tensor
from xdevice.errors import NotSupportedError

Array: TypeAlias = np.ndarray[Any, Any]
Exporter: TypeAlias = Any  # an object with the methods of DLPack

# Dtypes that NumPy lacks: Paddle returns integers of the same bits
FOREIGN = ("bfloat16", "float8_e4m3fn", "float8_e5m2")
_DTYPES_OF_BITS = (np.dtype("uint16"), np.dtype("uint8"), np.dtype("int8"))


def to_numpy(tensor: Tensor) -> Array:
    if type(tensor) is paddle.Tensor and tensor.is_dense():
        array: Array = tensor.numpy()  # a copy; empty if there are no values
        if array.size and array.dtype not in _DTYPES_OF_BITS:
            return array
    device_of(tensor)  # raises if there are no values
    array = dense(tensor).numpy()
    dtype = dtype_name(tensor)
    if dtype not in FOREIGN:
        return array
    try:
        import ml_dtypes
    except ModuleNotFoundError as error:
        hint = "convert it first with .astype('float32'), or pip install ml_dtypes"
        raise NotSupportedError(f"NumPy has no {dtype}; {hint}") from error
    return array.view(getattr(ml_dtypes, dtype))


def export(tensor: Tensor) -> tuple[Exporter, bool] | None:
    device_of(tensor)  # raises if there are no values
    if not tensor.is_dense() or not tensor.size:
        return None
    # Paddle's __dlpack_device__ returns (enum, None), which JAX does not accept
    exporter = SimpleNamespace(
        shape=tuple(tensor.shape),
        __dlpack__=tensor.detach().__dlpack__,
        __dlpack_device__=lambda: (dlpack.CPU, 0),
    )
    return exporter, True


def adopt(exporter: Exporter, writable: bool) -> Tensor | None:
    if not writable:
        return None
    return paddle.utils.dlpack.from_dlpack(exporter.__dlpack__())
