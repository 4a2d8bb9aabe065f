"""SyncBatchNorm: its five operations, which torch has for GPUs only, composed of ordinary ones.

Inputs are (batch, channel, ...). Statistics are of single precision where the input is of half.
"""

from __future__ import annotations

from typing import Any

import torch

from xdevice.backends.torch.private_names import library
from xdevice.backends.torch.virtual import runtime

Tensor = torch.Tensor


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
    running_mean: Tensor | None,
    running_var: Tensor | None,
    momentum: float,
    eps: float,
    counts: Tensor,
) -> tuple[Tensor, Tensor]:
    """The mean and the reciprocal deviation over all processes, from each one's; both are (processes, channels)."""
    n, share = counts.sum(), (counts / counts.sum()).unsqueeze(1)
    mean = (means * share).sum(0)
    variance = ((invstds**-2 - eps + (means - mean) ** 2) * share).sum(0)
    if running_mean is not None and running_var is not None:
        running_mean.lerp_(mean.to(running_mean.dtype), momentum)
        running_var.lerp_((variance * n / (n - 1)).to(running_var.dtype), momentum)
    return mean, (variance + eps).rsqrt()


def _normalized(  # noqa: PLR0913, PLR0917  (torch's signature)
    x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, invstd: Tensor, eps: float
) -> Tensor:
    y = (x - _wide(mean, x)) * _wide(invstd, x)
    y = y if weight is None else y * _wide(weight, x)
    return (y if bias is None else y + _wide(bias, x)).to(x.dtype)


def _backward_sums(
    grad: Tensor, x: Tensor, mean: Tensor, invstd: Tensor, weight: Tensor | None, *wanted: bool
) -> tuple[Tensor, ...]:
    sums = _single(grad).sum(_dims(x))
    with_deviation = (_single(grad) * (x - _wide(mean, x))).sum(_dims(x))
    return sums, with_deviation, with_deviation * invstd, sums.clone()


def _backward(  # noqa: PLR0913, PLR0917  (torch's signature)
    grad: Tensor,
    x: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    sums: Tensor,
    with_deviation: Tensor,
    counts: Tensor,
) -> Tensor:
    n = counts.sum()
    made = grad - _wide(sums / n, x) - (x - _wide(mean, x)) * _wide(invstd**2 * with_deviation / n, x)
    return (made * _wide(invstd if weight is None else invstd * weight, x)).to(x.dtype)


_registered: list[Any] = []  # registrations last as long as these objects


def register() -> None:
    """Register them for virtual GPUs."""
    ours = library.Library("aten", "IMPL")
    _registered.append(ours)
    for name, call in (
        ("batch_norm_stats", _stats),
        ("batch_norm_gather_stats_with_counts", _gather_stats),
        ("batch_norm_elemt", _normalized),
        ("batch_norm_backward_reduce", _backward_sums),
        ("batch_norm_backward_elemt", _backward),
    ):
        ours.impl(name, call, runtime.key())
