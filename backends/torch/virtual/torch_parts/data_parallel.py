"""What torch has for CUDA only: the functions under DataParallel, and the operations of SyncBatchNorm.

Inputs of the latter are (batch, channel, ...), and statistics of single precision where the input is of half.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from xdevice.backends.torch.private_names import in_place_of, kernels_of, replace_name
from xdevice.backends.torch.virtual.runtime import in_use, key

Tensor = torch.Tensor
Maybe = torch.Tensor | None


def replace() -> None:
    for name, ours in _FUNCTIONS.items():
        replace_name(f"torch._C:{name}", ours)

    @in_place_of("torch.cuda.nccl:is_available")
    def is_available(
        ask: Any, tensors: Any
    ) -> bool:  # which warns where torch was built without NCCL
        return not any(map(_is_ours, tensors)) and ask(tensors)

    kernels = kernels_of("aten")
    for name, kernel in _BATCH_NORM.items():
        kernels.impl(f"batch_norm_{name}", kernel, key())


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


def _dims(x: Tensor) -> list[int]:
    return [dim for dim in range(x.dim()) if dim != 1]


def _wide(channels: Tensor, x: Tensor) -> Tensor:
    """One number for each channel, in a shape that broadcasts over the input."""
    return channels.reshape(1, -1, *[1] * (x.dim() - 2))


def _single(x: Tensor) -> Tensor:
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def _stats(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    variance, mean = torch.var_mean(_single(x), _dims(x), correction=0)
    return mean, (variance + eps).rsqrt()


def _gather_stats(  # noqa: PLR0913, PLR0917  (torch's signature)
    x: Tensor,
    means: Tensor,
    invstds: Tensor,
    mean: Maybe,
    var: Maybe,
    momentum: float,
    eps: float,
    counts: Any,
) -> tuple[Tensor, Tensor]:
    """The mean and the reciprocal deviation over all processes, from each one's; both are (processes, channels)."""
    if not isinstance(counts, Tensor):  # each process has as many numbers
        counts = means.new_full((len(means),), counts)
    n, share = counts.sum(), (counts / counts.sum()).unsqueeze(1)
    joint = (means * share).sum(0)
    variance = ((invstds**-2 - eps + (means - joint) ** 2) * share).sum(0)
    if mean is not None and var is not None:  # the running ones
        mean.lerp_(joint.to(mean.dtype), momentum)
        var.lerp_((variance * n / (n - 1)).to(var.dtype), momentum)
    return joint, (variance + eps).rsqrt()


def _normalized(  # noqa: PLR0913, PLR0917  (torch's signature)
    x: Tensor, weight: Maybe, bias: Maybe, mean: Tensor, invstd: Tensor, eps: float
) -> Tensor:
    y = (x - _wide(mean, x)) * _wide(invstd, x)
    y = y if weight is None else y * _wide(weight, x)
    return (y if bias is None else y + _wide(bias, x)).to(x.dtype)


def _backward_sums(
    grad: Tensor, x: Tensor, mean: Tensor, invstd: Tensor, weight: Maybe, *wanted: bool
) -> Any:
    sums = _single(grad).sum(_dims(x))
    products = (_single(grad) * (x - _wide(mean, x))).sum(_dims(x))
    return sums, products, products * invstd, sums.clone()


def _backward(  # noqa: PLR0913, PLR0917  (torch's signature)
    grad: Tensor,
    x: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Maybe,
    sums: Tensor,
    products: Tensor,
    counts: Tensor,
) -> Tensor:
    n = counts.sum()
    made = grad - _wide(sums / n, x) - (x - _wide(mean, x)) * _wide(invstd**2 * products / n, x)
    return (made * _wide(invstd if weight is None else invstd * weight, x)).to(x.dtype)


_BATCH_NORM = {
    "stats": _stats,
    "gather_stats": _gather_stats,
    "gather_stats_with_counts": _gather_stats,
    "elemt": _normalized,
    "backward_reduce": _backward_sums,
    "backward_elemt": _backward,
}
