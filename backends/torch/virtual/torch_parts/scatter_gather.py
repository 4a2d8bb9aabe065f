"""The functions under DataParallel, which torch has for CUDA only."""

from collections.abc import Sequence
from typing import Any

import torch
from torch.cuda import nccl

from xdevice.backends.torch.private_names import replace_name
from xdevice.backends.torch.virtual.runtime import in_use

Tensor = torch.Tensor


def replace() -> None:
    for ours in (_scatter, _gather, _broadcast, _broadcast_coalesced, _scatter_out, _gather_out, _broadcast_out):
        replace_name(f"torch._C:{ours.__name__}", ours)
    ask: Any = nccl.is_available

    def is_available(tensors: Any) -> bool:  # which warns where torch was built without NCCL
        return all(tensor.device.type != in_use().name for tensor in tensors) and ask(tensors)

    replace_name("torch.cuda.nccl:is_available", is_available)


def _device(index: int | torch.device) -> torch.device:
    if isinstance(index, torch.device):
        return index
    return torch.device("cpu") if index < 0 else torch.device(in_use().name, index)


def _scatter(
    tensor: Any, targets: Sequence[int], sizes: Sequence[int] | None = None, dim: int = 0, streams: Any = None
) -> list[Tensor]:
    parts = tensor.split(list(sizes), dim) if sizes else tensor.chunk(len(targets), dim)
    return [part.to(_device(target)) for part, target in zip(parts, targets, strict=False)]  # fewer rows than devices


def _broadcast(tensor: Tensor, targets: Sequence[int]) -> list[Tensor]:
    return [tensor.to(_device(target)) for target in targets]  # the first is where it is: itself, as on CUDA


def _broadcast_coalesced(tensors: Sequence[Tensor], targets: Sequence[int], size: int) -> list[list[Tensor]]:
    return [[tensor.to(_device(target)) for tensor in tensors] for target in targets]


def _gather(tensors: Sequence[Tensor], dim: int, target: int | None) -> Tensor:
    where = _device(in_use().current() if target is None else target)
    return torch.cat([tensor.to(where) for tensor in tensors], dim)


def _scatter_out(tensor: Any, out: Sequence[Tensor], dim: int = 0, streams: Any = None) -> list[Tensor]:
    parts = tensor.split([made.size(dim) for made in out], dim)
    return [made.copy_(part) for made, part in zip(out, parts, strict=True)]


def _broadcast_out(tensor: Tensor, out: Sequence[Tensor]) -> list[Tensor]:
    return [made.copy_(tensor) for made in out]


def _gather_out(tensors: Sequence[Tensor], out: Tensor, dim: int) -> Tensor:
    return out.copy_(torch.cat([tensor.to(out.device) for tensor in tensors], dim))
