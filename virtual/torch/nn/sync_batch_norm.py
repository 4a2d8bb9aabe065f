"""The operations of ``torch.nn.SyncBatchNorm``, which torch has for CUDA only.

Inputs are (batch, channel, ...). Statistics of half-precision inputs are single precision.
"""

from typing import Any

import torch

from xdevice.virtual.torch.private_names import kernels_of
from xdevice.virtual.torch.runtime import dispatch_key

Tensor = torch.Tensor
Maybe = torch.Tensor | None


def register() -> None:
    kernels = kernels_of("aten")
    for name, kernel in _BATCH_NORM.items():
        kernels.impl(f"batch_norm_{name}", kernel, dispatch_key())


def _dims(x: Tensor) -> list[int]:
    return [dim for dim in range(x.dim()) if dim != 1]


def _per_channel(numbers: Tensor, x: Tensor) -> Tensor:
    """One number for each channel, in a shape that broadcasts over the input."""
    return numbers.reshape(1, -1, *[1] * (x.dim() - 2))


def _at_least_single(x: Tensor) -> Tensor:
    if x.dtype in (torch.float16, torch.bfloat16):
        return x.float()
    return x


def _stats(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    variance, mean = torch.var_mean(_at_least_single(x), _dims(x), correction=0)
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
    """The mean and the reciprocal deviation over all processes.

    ``means`` and ``invstds`` are those of each process, (processes, channels). ``mean`` and ``var``
    are the running statistics, which are updated.
    """
    if not isinstance(counts, Tensor):  # all processes have equally many elements
        counts = means.new_full((len(means),), counts)
    n = counts.sum()
    weights = (counts / n).unsqueeze(1)
    joint_mean = (means * weights).sum(0)
    variance = ((invstds**-2 - eps + (means - joint_mean) ** 2) * weights).sum(0)
    if mean is not None and var is not None:
        mean.lerp_(joint_mean.to(mean.dtype), momentum)
        var.lerp_((variance * n / (n - 1)).to(var.dtype), momentum)
    return joint_mean, (variance + eps).rsqrt()


def _normalized(  # noqa: PLR0913, PLR0917  (torch's signature)
    x: Tensor, weight: Maybe, bias: Maybe, mean: Tensor, invstd: Tensor, eps: float
) -> Tensor:
    y = (x - _per_channel(mean, x)) * _per_channel(invstd, x)
    if weight is not None:
        y = y * _per_channel(weight, x)
    if bias is not None:
        y = y + _per_channel(bias, x)
    return y.to(x.dtype)


def _backward_sums(
    grad: Tensor, x: Tensor, mean: Tensor, invstd: Tensor, weight: Maybe, *output_mask: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    grad = _at_least_single(grad)
    sums = grad.sum(_dims(x))
    products = (grad * (x - _per_channel(mean, x))).sum(_dims(x))
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
    centred_x = x - _per_channel(mean, x)
    slope = _per_channel(invstd**2 * products / n, x)
    centred_grad = grad - _per_channel(sums / n, x) - centred_x * slope
    scale = invstd if weight is None else invstd * weight
    return (centred_grad * _per_channel(scale, x)).to(x.dtype)


_BATCH_NORM = {
    "stats": _stats,
    "gather_stats": _gather_stats,
    "gather_stats_with_counts": _gather_stats,
    "elemt": _normalized,
    "backward_reduce": _backward_sums,
    "backward_elemt": _backward,
}
