"""New PyTorch tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from xdevice.backends.torch.hardware import native

if TYPE_CHECKING:
    from xdevice.device import Device


def dtype(name: str) -> Any:
    found = getattr(torch, name, None)
    return found if isinstance(found, torch.dtype) else None


def tensor(data: Any, dtype: Any, device: Device | None) -> torch.Tensor:
    if isinstance(data, torch.Tensor):
        return data.detach().to(_native(device), dtype, copy=True)
    try:
        return torch.tensor(data, dtype=dtype, device=_native(device))
    except RuntimeError as error:
        if "infer dtype" in str(error):  # what torch says of objects that are no numbers
            raise TypeError(str(error)) from error
        raise


def empty(shape: tuple[int, ...], dtype: Any, device: Device | None) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device=_native(device))


def zeros(shape: tuple[int, ...], dtype: Any, device: Device | None) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype, device=_native(device))


def ones(shape: tuple[int, ...], dtype: Any, device: Device | None) -> torch.Tensor:
    return torch.ones(shape, dtype=dtype, device=_native(device))


def full(shape: tuple[int, ...], value: Any, dtype: Any, device: Device | None) -> torch.Tensor:
    return torch.full(shape, value, dtype=dtype, device=_native(device))


def arange(start: Any, stop: Any, step: Any, dtype: Any, device: Device | None) -> torch.Tensor:
    return torch.arange(start, stop, step, dtype=dtype, device=_native(device))


def rand(shape: tuple[int, ...], dtype: Any, device: Device | None) -> torch.Tensor:
    return torch.rand(shape, dtype=dtype, device=_native(device))


def randn(shape: tuple[int, ...], dtype: Any, device: Device | None) -> torch.Tensor:
    return torch.randn(shape, dtype=dtype, device=_native(device))


def seed(n: int) -> None:
    torch.manual_seed(n)  # every device's generator


def _native(device: Device | None) -> torch.device | None:
    return None if device is None else native(device)
