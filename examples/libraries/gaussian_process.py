"""A Gaussian process: the mean and the variance of a function, given its values at some points."""

from xdevice import device_of, namespace
from xdevice.typing import Tensor


def kernel(a: Tensor, b: Tensor, length: float) -> Tensor:
    """The squared exponential kernel of each point of ``a`` with each of ``b``."""
    xp = namespace(a, b)
    difference = xp.expand_dims(a, axis=1) - xp.expand_dims(b, axis=0)
    return xp.exp(-xp.sum(difference**2, axis=2) / (2 * length**2))


def posterior(
    x: Tensor, y: Tensor, new_x: Tensor, length: float = 1.0, noise: float = 1e-2
) -> tuple[Tensor, Tensor]:
    """The mean and the variance at new points."""
    xp = namespace(x, y, new_x)
    covariance = kernel(x, x, length)
    covariance = covariance + noise * xp.eye(x.shape[0], dtype=x.dtype, device=device_of(x))
    cross = kernel(new_x, x, length)
    mean = cross @ xp.linalg.solve(covariance, xp.expand_dims(y, axis=1))
    explained = cross * xp.matrix_transpose(xp.linalg.solve(covariance, xp.matrix_transpose(cross)))
    return mean[:, 0], 1 - xp.sum(explained, axis=1)
