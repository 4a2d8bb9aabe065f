"""The functions that ``torch.nn.DataParallel`` calls, which torch has for CUDA only."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from xdevice.virtual.torch.private_names import Function, in_place_of, replace_name
from xdevice.virtual.torch.runtime import in_use

Tensor = torch.Tensor
Target = int | torch.device
"""A GPU by its index, the CPU by -1, or a device."""


def replace() -> None:
    for name, function in _FUNCTIONS.items():
        replace_name(f"torch._C:{name}", function)

    @in_place_of("torch.cuda.nccl:is_available")
    def is_available(native: Function, tensors: Sequence[torch.Tensor]) -> bool:
        # torch's function warns if torch was built without NCCL
        return not any(map(_is_virtual, tensors)) and native(tensors)


def _is_virtual(tensor: Tensor) -> bool:
    return tensor.device.type == in_use().name


def _device(index: Target) -> torch.device:
    if isinstance(index, torch.device):
        return index
    if index < 0:
        return torch.device("cpu")
    return torch.device(in_use().name, index)


def _check_on_gpus(outputs: Sequence[Tensor]) -> None:
    for i, output in enumerate(outputs):
        if not _is_virtual(output):
            raise RuntimeError(
                "Expected all output tensors to be CUDA tensors, but output tensor at index "
                f"{i} is not"
            )


def _scatter(
    tensor: Tensor,
    targets: Sequence[int],
    sizes: Sequence[int] | None = None,
    dim: int = 0,
    streams: Any = None,
) -> list[Tensor]:
    if not targets:
        raise RuntimeError("Expected at least one device to scatter to")
    if sizes and len(sizes) != len(targets):
        raise RuntimeError(
            "Expected devices and chunk_sizes to be of same length, but got "
            f"len(devices) = {len(targets)} and len(chunk_sizes) = {len(sizes)}"
        )
    parts = torch.split(tensor, list(sizes), dim) if sizes else tensor.chunk(len(targets), dim)
    # there are fewer parts than devices if the tensor has fewer rows
    pairs = zip(parts, targets, strict=False)
    return [part.to(_device(target)) for part, target in pairs]


def _scatter_out(
    tensor: Tensor, outputs: Sequence[Tensor], dim: int = 0, streams: Any = None
) -> list[Tensor]:
    if not outputs:
        raise RuntimeError("Expected at least one output tensor to scatter to")
    _check_on_gpus(outputs)
    for i, output in enumerate(outputs):
        expected = list(tensor.shape)
        expected[dim] = output.size(dim) if output.dim() == tensor.dim() else -1
        shape = list(output.shape)
        if shape != expected:
            raise RuntimeError(f"Output tensor at index {i} has incorrect shape: {shape}")
    sizes = [output.size(dim) for output in outputs]
    if sum(sizes) != tensor.size(dim):
        raise RuntimeError(
            f"Total size for output tensors along scatter dim {dim % tensor.dim()} does not match "
            f"(got {sum(sizes)} but expected {tensor.size(dim)})"
        )
    parts = torch.split(tensor, sizes, dim)
    return [output.copy_(part) for output, part in zip(outputs, parts, strict=True)]


def _gather(tensors: Sequence[Tensor], dim: int, target: Target | None) -> Tensor:
    index = in_use().current() if target is None else target
    return _concatenated(tensors, dim, _device(index))


def _gather_out(tensors: Sequence[Tensor], output: Tensor, dim: int) -> Tensor:
    return output.copy_(_concatenated(tensors, dim, output.device))


def _concatenated(tensors: Sequence[Tensor], dim: int, device: torch.device) -> Tensor:
    if not tensors:
        raise RuntimeError("Expected at least one tensor to gather from")
    first = tensors[0]
    for i, tensor in enumerate(tensors):
        if not _is_virtual(tensor):
            raise RuntimeError(
                f"Expected all input tensors to be CUDA tensors, but tensor at index {i} "
                f"is on '{tensor.device}'"
            )
        if tensor.dim() != first.dim():
            raise RuntimeError(
                "Expected all input tensors to have the same number of dimensions, but tensor at "
                f"index {i} has {tensor.dim()} dimensions, (expected {first.dim()})"
            )
        expected = list(first.shape)
        expected[dim] = tensor.size(dim)
        shape = list(tensor.shape)
        if shape != expected:
            raise RuntimeError(
                f"Input tensor at index {i} has invalid shape {shape}, but expected {expected}"
            )
    return torch.cat([tensor.to(device) for tensor in tensors], dim)


def _broadcast(tensor: Tensor, targets: Sequence[Target]) -> list[Tensor]:
    """The tensor on each device; the result on its own device is the tensor itself."""
    return [tensor.to(_device(target)) for target in targets]


def _broadcast_coalesced(
    tensors: Sequence[Tensor], targets: Sequence[Target], buffer_size: int
) -> list[list[Tensor]]:
    devices = [_device(target) for target in targets]
    return [[tensor.to(device) for tensor in tensors] for device in devices]


def _broadcast_out(tensor: Tensor, outputs: Sequence[Tensor]) -> list[Tensor]:
    _check_on_gpus(outputs)
    for i, output in enumerate(outputs):
        if output.shape != tensor.shape:
            raise RuntimeError(
                "Expected all output tensors to have same shape as the source tensor "
                f"{list(tensor.shape)}, but output tensor at index {i} has shape "
                f"{list(output.shape)}"
            )
    return [output.copy_(tensor) for output in outputs]


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "_scatter": _scatter,
    "_scatter_out": _scatter_out,
    "_gather": _gather,
    "_gather_out": _gather_out,
    "_broadcast": _broadcast,
    "_broadcast_coalesced": _broadcast_coalesced,
    "_broadcast_out": _broadcast_out,
}
