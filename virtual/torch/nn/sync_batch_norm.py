"""The operations of ``torch.nn.SyncBatchNorm``, which torch has for CUDA only.

Inputs are (batch, channel, ...); statistics are of single precision where the input is of half precision.
"""

from typing import Any

import torch

from xdevice.virtual.torch.private_names import kernels_of
from xdevice.virtual.torch.runtime import key

Tensor = torch.Tensor
Maybe = torch.Tensor | None


def register() -> None:
    kernels = kernels_of("aten")
    for name, kernel in _BATCH_NORM.items():
        kernels.impl(f"batch_norm_{name}", kernel, key())


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
