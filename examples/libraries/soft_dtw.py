"""Soft dynamic time warping: a differentiable distance of two series."""

from xdevice import device_of, namespace
from xdevice.typing import Tensor


def soft_minimum(values: list[Tensor], gamma: float) -> Tensor:
    xp = namespace(*values)
    scaled = -xp.stack(values) / gamma
    largest = xp.max(scaled, axis=0)
    return -gamma * (xp.log(xp.sum(xp.exp(scaled - largest), axis=0)) + largest)


def soft_dtw(a: Tensor, b: Tensor, gamma: float = 1.0) -> Tensor:
    """The distance of two series of numbers."""
    xp = namespace(a, b)
    costs = (xp.expand_dims(a, axis=1) - xp.expand_dims(b, axis=0)) ** 2
    # with one axis: MXNet's operators take no arrays without axes
    zero = xp.zeros((1,), dtype=a.dtype, device=device_of(a))
    beyond = zero + 1e10
    row = [zero] + [beyond] * b.shape[0]
    for i in range(a.shape[0]):
        new_row = [beyond]
        for j in range(b.shape[0]):
            cost = xp.reshape(costs[i, j], (1,))
            new_row.append(cost + soft_minimum([row[j], row[j + 1], new_row[j]], gamma))
        row = new_row
    return xp.sum(row[-1])
