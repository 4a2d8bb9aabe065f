"""Axes and shapes in the form that a framework's operations take: complete, and counted from 0."""

import math
from typing import Any

from xdevice.errors import ArgumentError, AxisError, CopyNeededError


def axes_of(axis: Any, ndim: int) -> tuple[int, ...]:
    """The axes, counted from 0: all of them for ``None``."""
    if axis is None:
        return tuple(range(ndim))
    given = axis if isinstance(axis, (tuple, list)) else (axis,)
    for each in given:
        if not -ndim <= each < ndim:
            raise AxisError(f"axis {each!r} does not exist in a tensor of {ndim} axes; count from 0, or from -1 back")
    found = tuple(each % ndim for each in given)
    if len(set(found)) < len(found):
        raise ArgumentError(f"axis={axis!r} names an axis twice; name each once")
    return found


def one_axis(x: Any, axis: int | None, what: str) -> int:
    """The axis, counted from 0; only a tensor of one axis needs none to be named."""
    if axis is None and len(x.shape) != 1:
        raise ArgumentError(f"{what} of a tensor of {len(x.shape)} axes needs an axis; give for example axis=0")
    return axes_of(0 if axis is None else axis, len(x.shape))[0]


def least_axes(x: Any, least: int, what: str) -> int:
    """The number of axes, which must be at least ``least``."""
    if len(x.shape) < least:
        raise ArgumentError(f"{what} was given a tensor of {len(x.shape)} axes; give {least} or more")
    return len(x.shape)


def size_of(shape: Any, axes: tuple[int, ...]) -> int:
    return math.prod(shape[axis] for axis in axes)


def no_copy(copy: bool | None) -> None:
    if copy is False:
        raise CopyNeededError("copy=False, but only a copy could be given; leave copy out")


def one_of(value: Any, options: tuple[Any, ...], argument: str) -> None:
    if value not in options:
        listed = ", ".join(map(repr, options))
        raise ArgumentError(f"{argument}={value!r} is not one of {listed}; give one of them")


def broadcast_shapes(*shapes: Any) -> tuple[int, ...]:
    ndim = max((len(shape) for shape in shapes), default=0)
    columns = zip(*((1,) * (ndim - len(shape)) + tuple(shape) for shape in shapes), strict=True)
    found = []
    for column in columns:
        sizes = set(column) - {1}
        if len(sizes) > 1:
            listed = " and ".join(str(tuple(shape)) for shape in shapes)
            raise ArgumentError(f"the shapes {listed} do not broadcast; sizes along an axis must be equal, or 1")
        found.append(sizes.pop() if sizes else 1)
    return tuple(found)
