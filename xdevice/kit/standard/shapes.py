"""Axes and shapes in the form that operations take, complete and counted from 0, and functions that change shapes."""

import math
from typing import Any

from xdevice.errors import ArgumentError, AxisError, CopyNeededError
from xdevice.kit.standard.dtypes import INTEGER, Operations, one_of


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


def joint_shape(*shapes: Any) -> tuple[int, ...]:
    """The shape to which all of these broadcast."""
    ndim = max(map(len, shapes), default=0)
    found = []
    for column in zip(*((1,) * (ndim - len(shape)) + tuple(shape) for shape in shapes), strict=True):
        sizes = set(column) - {1}
        if len(sizes) > 1:
            listed = " and ".join(str(tuple(shape)) for shape in shapes)
            raise ArgumentError(f"the shapes {listed} do not broadcast; sizes along an axis must be equal, or 1")
        found.append(sizes.pop() if sizes else 1)
    return tuple(found)


class Shapes(Operations):
    """The standard's functions that change the shape of tensors, or join them."""

    def permute_dims(self, x: Any, /, axes: Any) -> Any:
        return self._raw["permute_dims"](x, axes_of(tuple(axes), len(x.shape)))

    def moveaxis(self, x: Any, source: Any, destination: Any, /) -> Any:
        ndim = len(x.shape)
        moved = dict(zip(axes_of(destination, ndim), axes_of(source, ndim), strict=True))
        rest = iter([i for i in range(ndim) if i not in moved.values()])
        return self._raw["permute_dims"](x, tuple(moved[i] if i in moved else next(rest) for i in range(ndim)))

    def reshape(self, x: Any, /, shape: Any, *, copy: bool | None = None) -> Any:
        if copy is False:
            raise CopyNeededError("copy=False, but only a copy could be given; leave copy out")
        return self._raw["reshape"](x, tuple(shape) if hasattr(shape, "__iter__") else (shape,))

    def broadcast_to(self, x: Any, /, shape: Any) -> Any:
        return self._raw["broadcast_to"](x, tuple(shape))

    def broadcast_arrays(self, *arrays: Any) -> tuple[Any, ...]:
        shape = joint_shape(*(tuple(x.shape) for x in arrays))
        return tuple(self._raw["broadcast_to"](x, shape) for x in arrays)

    def broadcast_shapes(self, *shapes: Any) -> tuple[int, ...]:
        return joint_shape(*shapes)

    def expand_dims(self, x: Any, /, axis: Any) -> Any:
        given = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
        for each in sorted(axes_of(given, len(x.shape) + len(given))):
            x = self._raw["expand_dims"](x, each)
        return x

    def squeeze(self, x: Any, /, axis: Any) -> Any:
        axes = axes_of(axis, len(x.shape))
        if any(x.shape[i] not in (1, None) for i in axes):
            raise ArgumentError(f"squeeze of axis {axis!r}, but the shape is {tuple(x.shape)}; name axes of length 1")
        return self._raw["squeeze"](x, axes) if axes else x

    def flip(self, x: Any, /, *, axis: Any = None) -> Any:
        axes = axes_of(axis, len(x.shape))
        return self._raw["flip"](x, axes) if axes else x

    def roll(self, x: Any, /, shift: Any, *, axis: Any = None) -> Any:
        if axis is None:
            return self._raw["reshape"](self._raw["roll"](self._flat(x), (shift,), (0,)), tuple(x.shape))
        axes = axes_of(axis, len(x.shape))
        return self._raw["roll"](x, tuple(shift) if isinstance(shift, (tuple, list)) else (shift,) * len(axes), axes)

    def tile(self, x: Any, repetitions: Any, /) -> Any:
        more = len(repetitions) - len(x.shape)
        x = self._raw["reshape"](x, (1,) * more + tuple(x.shape)) if more > 0 else x
        return self._raw["tile"](x, (1,) * -more + tuple(repetitions))

    def repeat(self, x: Any, repeats: Any, /, *, axis: int | None = None) -> Any:
        if axis is None:
            x, axis = self._flat(x), 0
        (along,) = axes_of(axis, len(x.shape))
        if self._dtypes.dtype_name(repeats) is not None:  # one number may stand for all
            repeats = self._raw["broadcast_to"](self._dtypes.cast(repeats, INTEGER), (x.shape[along],))
        return self._raw["repeat"](x, repeats, along)

    def concat(self, arrays: Any, /, *, axis: int | None = 0) -> Any:
        parts = self._promote(*arrays)
        if axis is None:
            return self._raw["concat"](list(map(self._flat, parts)), 0)
        return self._raw["concat"](parts, *axes_of(axis, len(parts[0].shape)))

    def stack(self, arrays: Any, /, *, axis: int = 0) -> Any:
        parts = self._promote(*arrays)
        return self._raw["stack"](parts, *axes_of(axis, len(parts[0].shape) + 1))

    def unstack(self, x: Any, /, *, axis: int = 0) -> tuple[Any, ...]:
        return tuple(self._raw["unstack"](x, *axes_of(axis, len(x.shape))))

    def meshgrid(self, *arrays: Any, indexing: str = "xy") -> tuple[Any, ...]:
        one_of(indexing, ("xy", "ij"), "indexing")
        axes = list(range(len(arrays)))  # the axis along which each array lies, and the array along each axis
        if indexing == "xy":
            axes[:2] = reversed(axes[:2])
        sizes = tuple(arrays[i].shape[0] for i in axes)
        shapes = (tuple(-1 if i == axis else 1 for i in range(len(arrays))) for axis in axes)
        lying = (self._raw["reshape"](x, shape) for x, shape in zip(arrays, shapes, strict=True))
        return tuple(self._raw["broadcast_to"](x, sizes) for x in lying)

    def _flat(self, x: Any) -> Any:
        return self._raw["reshape"](x, (-1,))
