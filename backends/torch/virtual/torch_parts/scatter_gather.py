"""The functions under DataParallel, which torch has for CUDA only."""

from collections.abc import Sequence
from typing import Any

import torch

from xdevice.backends.torch.private_names import in_place_of, replace_name
from xdevice.backends.torch.virtual.runtime import in_use

Tensor = torch.Tensor


def replace() -> None:
    for ours in (_scatter, _gather, _broadcast, _broadcast_coalesced, _scatter_out, _gather_out, _broadcast_out):
        replace_name(f"torch._C:{ours.__name__}", ours)

    @in_place_of("torch.cuda.nccl:is_available")
    def is_available(ask: Any, tensors: Any) -> bool:  # which warns where torch was built without NCCL
        return all(tensor.device.type != in_use().name for tensor in tensors) and ask(tensors)


def _device(index: int | torch.device) -> torch.device:
    if isinstance(index, torch.device):
        return index
    return torch.device("cpu") if index < 0 else torch.device(in_use().name, index)


def _check(right: bool, words: str) -> None:
    """Raise as torch does for CUDA."""
    if not right:
        raise RuntimeError(words)


def _check_out(out: Sequence[Tensor]) -> None:
    for i, made in enumerate(out):
        of_gpu = made.device.type == in_use().name
        _check(of_gpu, f"Expected all output tensors to be CUDA tensors, but output tensor at index {i} is not")


def _scatter(
    tensor: Any, targets: Sequence[int], sizes: Sequence[int] | None = None, dim: int = 0, streams: Any = None
) -> list[Tensor]:
    _check(len(targets) > 0, "Expected at least one device to scatter to")
    lengths = f"len(devices) = {len(targets)} and len(chunk_sizes) = {len(sizes or ())}"
    same = not sizes or len(sizes) == len(targets)
    _check(same, f"Expected devices and chunk_sizes to be of same length, but got {lengths}")
    parts = tensor.split(list(sizes), dim) if sizes else tensor.chunk(len(targets), dim)
    return [part.to(_device(target)) for part, target in zip(parts, targets, strict=False)]  # fewer rows than devices


def _broadcast(tensor: Tensor, targets: Sequence[int]) -> list[Tensor]:
    return [tensor.to(_device(target)) for target in targets]  # the first is where it is: itself, as on CUDA


def _broadcast_coalesced(tensors: Sequence[Tensor], targets: Sequence[int], size: int) -> list[list[Tensor]]:
    return [[tensor.to(_device(target)) for tensor in tensors] for target in targets]


def _gather(tensors: Sequence[Tensor], dim: int, target: int | None) -> Tensor:
    where = _device(in_use().current() if target is None else target)
    return torch.cat([tensor.to(where) for tensor in _gathered(tensors, dim)], dim)


def _gathered(tensors: Sequence[Tensor], dim: int) -> Sequence[Tensor]:
    """The tensors, which can be joined along the dimension."""
    _check(len(tensors) > 0, "Expected at least one tensor to gather from")
    first = tensors[0]
    for i, tensor in enumerate(tensors):
        where = f"but tensor at index {i}"
        of_gpu = tensor.device.type == in_use().name
        _check(of_gpu, f"Expected all input tensors to be CUDA tensors, {where} is on '{tensor.device}'")
        dims = f"{where} has {tensor.dim()} dimensions, (expected {first.dim()})"
        _check(tensor.dim() == first.dim(), f"Expected all input tensors to have the same number of dimensions, {dims}")
        expected = list(first.shape)
        expected[dim] = tensor.size(dim)
        shapes = f"{list(tensor.shape)}, but expected {expected}"
        _check(list(tensor.shape) == expected, f"Input tensor at index {i} has invalid shape {shapes}")
    return tensors


def _scatter_out(tensor: Any, out: Sequence[Tensor], dim: int = 0, streams: Any = None) -> list[Tensor]:
    _check(len(out) > 0, "Expected at least one output tensor to scatter to")
    _check_out(out)
    for i, made in enumerate(out):
        expected = list(tensor.shape)
        expected[dim] = made.size(dim) if made.dim() == tensor.dim() else -1
        _check(list(made.shape) == expected, f"Output tensor at index {i} has incorrect shape: {list(made.shape)}")
    sizes = [made.size(dim) for made in out]
    totals = f"(got {sum(sizes)} but expected {tensor.size(dim)})"
    matches = sum(sizes) == tensor.size(dim)
    _check(matches, f"Total size for output tensors along scatter dim {dim % tensor.dim()} does not match {totals}")
    return [made.copy_(part) for made, part in zip(out, tensor.split(sizes, dim), strict=True)]


def _broadcast_out(tensor: Tensor, out: Sequence[Tensor]) -> list[Tensor]:
    _check_out(out)
    for i, made in enumerate(out):
        shapes = f"{list(tensor.shape)}, but output tensor at index {i} has shape {list(made.shape)}"
        same = made.shape == tensor.shape
        _check(same, f"Expected all output tensors to have same shape as the source tensor {shapes}")
    return [made.copy_(tensor) for made in out]


def _gather_out(tensors: Sequence[Tensor], out: Tensor, dim: int) -> Tensor:
    return out.copy_(torch.cat([tensor.to(out.device) for tensor in _gathered(tensors, dim)], dim))
