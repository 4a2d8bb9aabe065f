"""Products with a result wider than the matrices, which CUDA alone has: ``torch.mm(x, y, out_dtype=torch.float32)``."""

from collections.abc import Callable
from typing import Any

import torch

from xdevice.backends.torch.private_names import aten, kernels_of

Tensor = torch.Tensor

_HALF = torch.float16, torch.bfloat16


def register() -> None:
    ours = kernels_of("aten")
    for name in "mm", "bmm", "addmm", "baddbmm":
        packet = getattr(aten, name)
        kernel = _added(packet) if "add" in name else _product(packet)
        if "dtype" in packet.overloads():
            ours.impl(f"{name}.dtype", kernel, "CUDA")
            ours.impl(f"{name}.dtype_out", _written(kernel), "CUDA")


def _product(packet: Any) -> Callable[..., Tensor]:
    def product(x: Tensor, y: Tensor, out_dtype: torch.dtype) -> Tensor:
        _check(x, y, out_dtype)
        found: Tensor = packet(x.to(out_dtype), y.to(out_dtype))
        return found

    return product


def _added(packet: Any) -> Callable[..., Tensor]:
    def added(to: Tensor, x: Tensor, y: Tensor, out_dtype: torch.dtype, **factors: Any) -> Tensor:
        _check(x, y, out_dtype)
        if to.dtype not in (out_dtype, x.dtype):
            name = "mat1" if x.dim() == 2 else "batch1"
            raise RuntimeError(f"self dtype must match either out_dtype or {name} dtype")
        found: Tensor = packet(to.to(out_dtype), x.to(out_dtype), y.to(out_dtype), **factors)
        return found

    return added


def _written(kernel: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def written(*args: Any, out: Tensor, **factors: Any) -> Tensor:
        if out.dtype != args[-1]:
            raise RuntimeError("out_dtype must be the same as the dtype of the provided out tensor")
        found = kernel(*args, **factors)
        return out.resize_(found.shape).copy_(found)

    return written


def _check(x: Tensor, y: Tensor, out_dtype: torch.dtype) -> None:
    """Raise CUDA's errors."""
    if x.dtype != y.dtype:
        raise RuntimeError("input dtypes must be the same")
    if out_dtype != x.dtype and not (out_dtype == torch.float32 and x.dtype in _HALF):
        raise RuntimeError("out_dtype must be the same as input dtype or fp32 for fp16/bf16 inputs")
