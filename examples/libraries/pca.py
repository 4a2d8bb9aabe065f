"""Principal component analysis."""

from xdevice import namespace
from xdevice.typing import Tensor


class PCA:
    """The directions in which points vary most, and the variance in each."""

    def __init__(self, points: Tensor, components: int) -> None:
        xp = namespace(points)
        self.mean = xp.mean(points, axis=0)
        centered = points - self.mean
        covariance = xp.matrix_transpose(centered) @ centered / (points.shape[0] - 1)
        variances, directions = xp.linalg.eigh(covariance)  # in ascending order
        self.variances = xp.flip(variances)[:components]
        self.directions = xp.flip(directions, axis=1)[:, :components]

    def transform(self, points: Tensor) -> Tensor:
        """The points in the coordinates of the components."""
        return (points - self.mean) @ self.directions

    def inverse(self, coordinates: Tensor) -> Tensor:
        """The points of coordinates."""
        return coordinates @ namespace(coordinates).matrix_transpose(self.directions) + self.mean
