"""k-means: the centers of groups of points."""

from xdevice import device_of, namespace
from xdevice.typing import Tensor


def nearest(points: Tensor, centers: Tensor) -> Tensor:
    """The number of the nearest center of each point."""
    xp = namespace(points, centers)
    difference = xp.expand_dims(points, axis=1) - xp.expand_dims(centers, axis=0)
    return xp.argmin(xp.sum(difference**2, axis=2), axis=1)


def k_means(points: Tensor, k: int, steps: int = 10) -> tuple[Tensor, Tensor]:
    """The centers, and the number of each point's center; the first ``k`` points are the start."""
    xp = namespace(points)
    centers = points[:k, :]
    for _ in range(steps):
        labels = nearest(points, centers)
        numbers = xp.arange(k, dtype=labels.dtype, device=device_of(points))
        is_member = xp.equal(xp.expand_dims(labels, axis=1), numbers)
        members = xp.astype(is_member, points.dtype)
        counts = xp.expand_dims(xp.sum(members, axis=0), axis=1)
        sums = xp.matmul(xp.matrix_transpose(members), points)
        # a center without points stays
        centers = xp.where(counts > 0, sums / xp.maximum(counts, 1.0), centers)
    return centers, nearest(points, centers)
