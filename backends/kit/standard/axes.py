"""Axes and shapes as operations take them: complete, and counted from 0."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeAlias

from xdevice.errors import ArgumentError, AxisError

Shape = Sequence[int]


class Tensor(Protocol):
    """A framework's tensor, of which this package knows the shape alone.

    It is computed with by the adapter's operations, which run where their
    tensors are. The framework's operators may not: TensorFlow runs ``x[1:]``
    in the scope. To this type they are errors.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes along the axes."""


Function: TypeAlias = Callable[..., Tensor]
Functions: TypeAlias = Mapping[str, Function]
"""Functions by name."""

Axes: TypeAlias = int | tuple[int, ...] | list[int] | None


def axes_of(axis: Axes, ndim: int) -> tuple[int, ...]:
    """The axes, counted from 0: all of them for ``None``."""
    if axis is None:
        return tuple(range(ndim))
    numbers = axis if isinstance(axis, (tuple, list)) else [axis]
    for number in numbers:
        if not -ndim <= number < ndim:
            raise AxisError(
                f"axis {number!r} does not exist in a tensor of {ndim} axes; "
                "count from 0, or from -1 back"
            )
    axes = tuple(number % ndim for number in numbers)
    if len(set(axes)) < len(axes):
        raise ArgumentError(f"axis={axis!r} names an axis twice; name each once")
    return axes


def one_axis(x: Tensor, axis: int | None, function: str) -> int:
    """The axis, counted from 0.

    It may be ``None`` only for a tensor of one axis.
    """
    ndim = len(x.shape)
    if axis is not None:
        return axes_of(axis, ndim)[0]
    if ndim != 1:
        raise ArgumentError(
            f"{function} of a tensor of {ndim} axes needs an axis; give for example axis=0"
        )
    return 0


def least_axes(x: Tensor, least: int, function: str) -> int:
    """The number of axes, which must be at least ``least``."""
    ndim = len(x.shape)
    if ndim < least:
        raise ArgumentError(f"{function} was given a tensor of {ndim} axes; give {least} or more")
    return ndim


def size_of(shape: Shape, axes: Iterable[int]) -> int:
    """The number of elements along the axes."""
    return math.prod(shape[axis] for axis in axes)


def joint_shape(*shapes: Shape) -> tuple[int, ...]:
    """The shape to which all of these broadcast."""
    ndim = max(map(len, shapes), default=0)
    padded = [(1,) * (ndim - len(shape)) + tuple(shape) for shape in shapes]
    return tuple(_joint_size(sizes, shapes) for sizes in zip(*padded, strict=True))


def _joint_size(sizes: tuple[int, ...], shapes: Iterable[Shape]) -> int:
    """The size along one axis, to which the sizes of all shapes broadcast."""
    larger = set(sizes) - {1}
    if len(larger) > 1:
        listed = " and ".join(str(tuple(shape)) for shape in shapes)
        raise ArgumentError(
            f"the shapes {listed} do not broadcast; sizes along an axis must be equal, or 1"
        )
    if not larger:
        return 1
    return larger.pop()
