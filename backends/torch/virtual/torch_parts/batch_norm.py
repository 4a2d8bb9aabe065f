"""SyncBatchNorm: its five operations, which torch has for GPUs only, composed of ordinary ones.

Inputs are (batch, channel, ...). Statistics are of single precision where the input is of half.
"""

import torch

from xdevice.backends.torch.private_names import kernels_of
from xdevice.backends.torch.virtual import runtime

Tensor = torch.Tensor
Maybe = torch.Tensor | None


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
    x: Tensor, means: Tensor, invstds: Tensor, mean: Maybe, var: Maybe, momentum: float, eps: float, counts: Tensor
) -> tuple[Tensor, Tensor]:
    """The mean and the reciprocal deviation over all processes, from each one's; both are (processes, channels)."""
    n, share = counts.sum(), (counts / counts.sum()).unsqueeze(1)
    joint = (means * share).sum(0)
    variance = ((invstds**-2 - eps + (means - joint) ** 2) * share).sum(0)
    if mean is not None and var is not None:  # the running ones
        mean.lerp_(joint.to(mean.dtype), momentum)
        var.lerp_((variance * n / (n - 1)).to(var.dtype), momentum)
    return joint, (variance + eps).rsqrt()


def _gather_equal_stats(  # noqa: PLR0913, PLR0917  (torch's signature)
    x: Tensor, means: Tensor, invstds: Tensor, mean: Maybe, var: Maybe, momentum: float, eps: float, count: int
) -> tuple[Tensor, Tensor]:
    """The same where each process has as many numbers."""
    return _gather_stats(x, means, invstds, mean, var, momentum, eps, means.new_full((len(means),), count))


def _normalized(  # noqa: PLR0913, PLR0917  (torch's signature)
    x: Tensor, weight: Maybe, bias: Maybe, mean: Tensor, invstd: Tensor, eps: float
) -> Tensor:
    y = (x - _wide(mean, x)) * _wide(invstd, x)
    y = y if weight is None else y * _wide(weight, x)
    return (y if bias is None else y + _wide(bias, x)).to(x.dtype)


def _backward_sums(
    grad: Tensor, x: Tensor, mean: Tensor, invstd: Tensor, weight: Maybe, *wanted: bool
) -> tuple[Tensor, ...]:
    sums = _single(grad).sum(_dims(x))
    products = (_single(grad) * (x - _wide(mean, x))).sum(_dims(x))
    return sums, products, products * invstd, sums.clone()


def _backward(  # noqa: PLR0913, PLR0917  (torch's signature)
    grad: Tensor, x: Tensor, mean: Tensor, invstd: Tensor, weight: Maybe, sums: Tensor, products: Tensor, counts: Tensor
) -> Tensor:
    n = counts.sum()
    made = grad - _wide(sums / n, x) - (x - _wide(mean, x)) * _wide(invstd**2 * products / n, x)
    return (made * _wide(invstd if weight is None else invstd * weight, x)).to(x.dtype)


def register() -> None:
    ours = kernels_of("aten")
    for name, call in (
        ("batch_norm_stats", _stats),
        ("batch_norm_gather_stats", _gather_equal_stats),
        ("batch_norm_gather_stats_with_counts", _gather_stats),
        ("batch_norm_elemt", _normalized),
        ("batch_norm_backward_reduce", _backward_sums),
        ("batch_norm_backward_elemt", _backward),
    ):
        ours.impl(name, call, runtime.key())
