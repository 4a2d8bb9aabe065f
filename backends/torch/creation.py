"""New PyTorch tensors."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from xdevice.backends.kit import keras
from xdevice.backends.torch.exchange import described
from xdevice.backends.torch.hardware import native
from xdevice.backends.torch.placement import plain
from xdevice.device import Device
from xdevice.errors import NotSupportedError

# Messages about arguments, which torch raises as RuntimeError.
_ABOUT_ARGUMENTS = (
    *("infer dtype", "overflow", "not implemented for", "cannot be converted", "Could not run"),
    "expects each tensor to be equal size",
    # of dtypes that a GPU lacks: Apple's (pytorch/pytorch#176981) and Intel's
    # (intel/torch-xpu-ops#1742)
    *("Undefined type", "Required aspect"),
)
_LARGEST_HALF = torch.finfo(torch.float16).max


def dtype(name: str) -> Any:
    value = getattr(torch, name, None)
    return value if isinstance(value, torch.dtype) else None


def tensor(data: Any, dtype: Any, device: Device | None) -> torch.Tensor:
    if isinstance(data, torch.Tensor) or _is_variable(data):
        source = plain(data).detach()
        if source.is_mkldnn:
            raise NotSupportedError(f"torch makes plain tensors, and this is {described(source)}")
        return source.to(_native(device), dtype, copy=True)
    native_device = None if device is None else native(device)
    if type(data) is np.ndarray and torch.compiler.is_compiling():
        # a tensor to the compiler, for which torch.tensor warns
        return torch.asarray(data, dtype=dtype, device=native_device, copy=True)
    try:
        return torch.tensor(data, dtype=dtype, device=native_device)
    except RuntimeError as error:
        _raise_value_error(error)
        raise
    except (TypeError, ValueError):
        if not _has_arrays(data):
            raise
    # torch.tensor takes a sequence of numbers, and not one of arrays
    return _call(torch.stack, [tensor(item, dtype, device) for item in data])


def _is_variable(data: Any) -> bool:
    """Whether it is a variable of Keras."""
    return type(data) is not list and keras.category(type(data), "torch") == "tensor"


def _has_arrays(data: Any) -> bool:
    """Whether it is a sequence with tensors that are not single numbers."""
    if not isinstance(data, (list, tuple)):
        return False
    return any(isinstance(item, torch.Tensor) and item.ndim for item in data)


def _of_shape(name: str) -> Callable[..., torch.Tensor]:
    """torch's factory of that name, looked up at each call, since another function may take its place."""

    def create(shape: tuple[int, ...], dtype: Any, device: Device | None) -> torch.Tensor:
        native_device = None if device is None else native(device)
        try:
            new: torch.Tensor = getattr(torch, name)(shape, dtype=dtype, device=native_device)
        except RuntimeError as error:
            _raise_value_error(error)
            raise
        return new

    return create


empty, zeros, ones, rand, randn = map(_of_shape, ("empty", "zeros", "ones", "rand", "randn"))


def full(shape: tuple[int, ...], value: Any, dtype: Any, device: Device | None) -> torch.Tensor:
    if isinstance(value, torch.Tensor):  # torch.full takes numbers only
        return value.to(device=_native(device), dtype=dtype).reshape(()).expand(shape).clone()
    number = rounded(value, dtype)
    native_device = None if device is None else native(device)
    try:
        return torch.full(shape, number, dtype=dtype, device=native_device)
    except RuntimeError as error:
        _raise_value_error(error)
        raise


def rounded(value: Any, dtype: torch.dtype | None) -> Any:
    """The number; infinity for a float beyond the dtype's largest, which torch 2.13 refuses."""
    if type(value) is not float or abs(value) <= _LARGEST_HALF or dtype is None:
        return value
    is_beyond = _is_inexact(dtype) and abs(value) > torch.finfo(dtype).max
    return math.copysign(math.inf, value) if is_beyond else value


def _is_inexact(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


def arange(start: Any, stop: Any, step: Any, dtype: Any, device: Device | None) -> torch.Tensor:
    # torch 2.13 cannot count in these dtypes
    is_wide_unsigned = dtype in (torch.uint16, torch.uint32, torch.uint64)
    counted = torch.int64 if is_wide_unsigned else dtype
    numbers = _call(torch.arange, start, stop, step, dtype=counted, device=_native(device))
    return numbers.to(dtype) if is_wide_unsigned else numbers


def seed(n: int) -> None:
    torch.manual_seed(n)  # every device's generator


def _call(factory: Callable[..., torch.Tensor], *args: Any, **options: Any) -> torch.Tensor:
    try:
        return factory(*args, **options)
    except RuntimeError as error:
        _raise_value_error(error)
        raise


def _raise_value_error(error: RuntimeError) -> None:
    """Raise a ValueError if the error is about wrong arguments, as other frameworks do."""
    if any(words in str(error) for words in _ABOUT_ARGUMENTS):
        raise ValueError(str(error).splitlines()[0]) from error


def _native(device: Device | None) -> torch.device | None:
    return None if device is None else native(device)
