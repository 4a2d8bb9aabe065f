"""PyTorch tensors out of PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from xdevice.backends.torch import in_keras
from xdevice.errors import NotSupportedError, UnknownPlacementError

if TYPE_CHECKING:
    import numpy as np


def to_numpy(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    tensor = in_keras.plain(tensor)
    if tensor.layout is not torch.strided or tensor.is_nested:
        kind = "nested" if tensor.is_nested else str(tensor.layout).removeprefix("torch.")
        way = "its to_padded_tensor(0.0)" if tensor.is_nested else "its to_dense()"
        raise NotSupportedError(f"NumPy cannot hold a {kind} tensor; take {way} first")
    if tensor.is_quantized:
        raise NotSupportedError(f"NumPy cannot hold a {tensor.dtype} tensor; take its dequantize() or int_repr() first")
    host = tensor.detach().resolve_conj().resolve_neg()
    if host.device.type == "meta":
        raise UnknownPlacementError("a tensor on meta:0 has a shape and no values; make it on a real device")
    host = host.clone() if host.device.type == "cpu" else host.cpu()
    try:
        array: np.ndarray[Any, Any] = host.numpy()
    except TypeError as error:
        raise NotSupportedError(
            f"NumPy cannot hold this {host.dtype} tensor ({error}); convert it first, for example with .float()"
        ) from error
    except RuntimeError as error:  # a subclass without memory of its own
        raise NotSupportedError(
            f"NumPy cannot hold this {type(tensor).__name__} ({error}); give an ordinary tensor, which has values"
        ) from error
    return array
