"""New PyTorch tensors."""

import math
from collections.abc import Callable
from typing import Any

import torch

from xdevice.backends.torch.exchange import described
from xdevice.backends.torch.hardware import native
from xdevice.backends.torch.placement import plain
from xdevice.device import Device
from xdevice.errors import NotSupportedError
from xdevice.kit import keras

# Messages about arguments, which torch raises as RuntimeError.
_ABOUT_ARGUMENTS = (
    *("infer dtype", "overflow", "not implemented for", "cannot be converted", "Could not run"),
    "expects each tensor to be equal size",
    # of dtypes that a GPU lacks: Apple's (pytorch/pytorch#176981) and Intel's (intel/torch-xpu-ops#1742)
    *("Undefined type", "Required aspect"),
)
_LARGEST_HALF = torch.finfo(torch.float16).max


def dtype(name: str) -> Any:
    found = getattr(torch, name, None)
    return found if isinstance(found, torch.dtype) else None


def tensor(data: Any, dtype: Any, device: Device | None) -> torch.Tensor:
    if isinstance(data, torch.Tensor) or (
        type(data) is not list and keras.role(type(data), "torch") == "tensor"
    ):
        source = plain(data).detach()
        if source.is_mkldnn:
            raise NotSupportedError(f"torch makes plain tensors, and this is {described(source)}")
        return source.to(_native(device), dtype, copy=True)
    try:
        return _made(torch.tensor, data, dtype=dtype, device=_native(device))
    except (TypeError, ValueError):
        if not isinstance(data, (list, tuple)) or not any(
            isinstance(x, torch.Tensor) and x.ndim for x in data
        ):
            raise
    return _made(
        torch.stack, [tensor(each, dtype, device) for each in data]
    )  # torch.tensor takes numbers alone


def _of_shape(name: str) -> Callable[..., torch.Tensor]:
    """torch's factory of that name, looked up when it is called: virtual GPUs may replace it."""
    return lambda shape, dtype, device: _made(
        getattr(torch, name), shape, dtype=dtype, device=_native(device)
    )


empty, zeros, ones, rand, randn = map(_of_shape, ("empty", "zeros", "ones", "rand", "randn"))


def full(shape: tuple[int, ...], value: Any, dtype: Any, device: Device | None) -> torch.Tensor:
    if isinstance(value, torch.Tensor):  # torch.full takes numbers only
        return value.to(device=_native(device), dtype=dtype).reshape(()).expand(shape).clone()
    filling = rounded(value, dtype)
    return _made(torch.full, shape, filling, dtype=dtype, device=_native(device))


def rounded(value: Any, dtype: torch.dtype | None) -> Any:
    """The number; infinity for a float beyond the dtype's largest, which torch 2.13 refuses."""
    if type(value) is not float or abs(value) <= _LARGEST_HALF or dtype is None:
        return value
    is_beyond = _is_inexact(dtype) and abs(value) > torch.finfo(dtype).max
    return math.copysign(math.inf, value) if is_beyond else value


def _is_inexact(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


def arange(start: Any, stop: Any, step: Any, dtype: Any, device: Device | None) -> torch.Tensor:
    counted = (
        torch.int64 if dtype in (torch.uint16, torch.uint32, torch.uint64) else dtype
    )  # torch 2.13 has no others
    found = _made(torch.arange, start, stop, step, dtype=counted, device=_native(device))
    return found if counted is dtype else found.to(dtype)


def seed(n: int) -> None:
    torch.manual_seed(n)  # every device's generator


def _made(make: Callable[..., torch.Tensor], *args: Any, **options: Any) -> torch.Tensor:
    try:
        return make(*args, **options)
    except (
        RuntimeError
    ) as error:  # where other frameworks raise ValueError; NotImplementedError is a subclass
        if any(words in str(error) for words in _ABOUT_ARGUMENTS):
            raise ValueError(str(error).splitlines()[0]) from error
        raise


def _native(device: Device | None) -> torch.device | None:
    return None if device is None else native(device)
