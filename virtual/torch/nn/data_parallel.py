"""The functions under ``torch.nn.DataParallel``, which torch has for CUDA only."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from xdevice.virtual.torch.private_names import in_place_of, replace_name
from xdevice.virtual.torch.runtime import in_use

Tensor = torch.Tensor


def replace() -> None:
    for name, ours in _FUNCTIONS.items():
        replace_name(f"torch._C:{name}", ours)

    @in_place_of("torch.cuda.nccl:is_available")
    def is_available(
        ask: Any, tensors: Any
    ) -> bool:  # which warns where torch was built without NCCL
        return not any(map(_is_ours, tensors)) and ask(tensors)


def _is_ours(tensor: Tensor) -> bool:
    return tensor.device.type == in_use().name


def _device(index: int | torch.device) -> torch.device:
    if isinstance(index, torch.device):
        return index
    return torch.device("cpu") if index < 0 else torch.device(in_use().name, index)


def _check(right: bool, words: str) -> None:
    if not right:
        raise RuntimeError(words)


def _check_on_gpus(out: Sequence[Tensor]) -> None:
    for i, made in enumerate(out):
        _check(
            _is_ours(made),
            f"Expected all output tensors to be CUDA tensors, but output tensor at index {i} is not",
        )


def _scatter(
    tensor: Any, targets: Sequence[int], sizes: Any = None, dim: int = 0, streams: Any = None
) -> list[Tensor]:
    _check(len(targets) > 0, "Expected at least one device to scatter to")
    lengths = f"len(devices) = {len(targets)} and len(chunk_sizes) = {len(sizes or ())}"
    same = not sizes or len(sizes) == len(targets)
    _check(same, f"Expected devices and chunk_sizes to be of same length, but got {lengths}")
    parts = tensor.split(list(sizes), dim) if sizes else tensor.chunk(len(targets), dim)
    return [
        part.to(_device(target)) for part, target in zip(parts, targets, strict=False)
    ]  # fewer rows than devices


def _joined(tensors: Sequence[Tensor], dim: int, where: torch.device) -> Tensor:
    _check(len(tensors) > 0, "Expected at least one tensor to gather from")
    first = tensors[0]
    for i, tensor in enumerate(tensors):
        place = f"but tensor at index {i}"
        there = f"{place} is on '{tensor.device}'"
        _check(_is_ours(tensor), f"Expected all input tensors to be CUDA tensors, {there}")
        dims = f"{place} has {tensor.dim()} dimensions, (expected {first.dim()})"
        _check(
            tensor.dim() == first.dim(),
            f"Expected all input tensors to have the same number of dimensions, {dims}",
        )
        expected = list(first.shape)
        expected[dim] = tensor.size(dim)
        shapes = f"{list(tensor.shape)}, but expected {expected}"
        _check(
            list(tensor.shape) == expected, f"Input tensor at index {i} has invalid shape {shapes}"
        )
    return torch.cat([tensor.to(where) for tensor in tensors], dim)


def _scatter_out(
    tensor: Any, out: Sequence[Tensor], dim: int = 0, streams: Any = None
) -> list[Tensor]:
    _check(len(out) > 0, "Expected at least one output tensor to scatter to")
    _check_on_gpus(out)
    for i, made in enumerate(out):
        expected = list(tensor.shape)
        expected[dim] = made.size(dim) if made.dim() == tensor.dim() else -1
        _check(
            list(made.shape) == expected,
            f"Output tensor at index {i} has incorrect shape: {list(made.shape)}",
        )
    sizes = [made.size(dim) for made in out]
    totals = f"(got {sum(sizes)} but expected {tensor.size(dim)})"
    matches = sum(sizes) == tensor.size(dim)
    _check(
        matches,
        f"Total size for output tensors along scatter dim {dim % tensor.dim()} does not match {totals}",
    )
    return [made.copy_(part) for made, part in zip(out, tensor.split(sizes, dim), strict=True)]


def _broadcast_out(tensor: Tensor, out: Sequence[Tensor]) -> list[Tensor]:
    _check_on_gpus(out)
    for i, made in enumerate(out):
        shapes = (
            f"{list(tensor.shape)}, but output tensor at index {i} has shape {list(made.shape)}"
        )
        same = made.shape == tensor.shape
        _check(
            same, f"Expected all output tensors to have same shape as the source tensor {shapes}"
        )
    return [made.copy_(tensor) for made in out]


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "_scatter": _scatter,
    "_scatter_out": _scatter_out,
    "_gather": lambda xs, dim, to: _joined(
        xs, dim, _device(in_use().current() if to is None else to)
    ),
    "_gather_out": lambda xs, out, dim: out.copy_(_joined(xs, dim, out.device)),
    "_broadcast": lambda x, targets: [
        x.to(_device(to)) for to in targets
    ],  # the first to where it is: itself
    "_broadcast_coalesced": lambda xs, targets, size: [
        [x.to(_device(to)) for x in xs] for to in targets
    ],
    "_broadcast_out": _broadcast_out,
}
