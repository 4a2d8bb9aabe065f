"""The standard's functions that change the shape of tensors, or join them."""

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from xdevice.backends.kit.standard.axes import Axes, Shape, Tensor, axes_of, joint_shape
from xdevice.backends.kit.standard.dtypes import INTEGER, Operand, Operations, one_of
from xdevice.errors import ArgumentError, CopyNeededError

Integers: TypeAlias = int | tuple[int, ...] | list[int]


class Manipulation(Operations):
    def permute_dims(self, x: Tensor, /, axes: Sequence[int]) -> Tensor:
        return self._raw["permute_dims"](x, axes_of(tuple(axes), len(x.shape)))

    def moveaxis(self, x: Tensor, source: Integers, destination: Integers, /) -> Tensor:
        ndim = len(x.shape)
        sources = axes_of(source, ndim)
        destinations = axes_of(destination, ndim)
        order = [axis for axis in range(ndim) if axis not in sources]
        for new_place, axis in sorted(zip(destinations, sources, strict=True)):
            order.insert(new_place, axis)
        return self._raw["permute_dims"](x, tuple(order))

    def reshape(self, x: Tensor, /, shape: int | Shape, *, copy: bool | None = None) -> Tensor:
        if copy is False:
            raise CopyNeededError("copy=False, but only a copy could be given; leave copy out")
        sizes = tuple(shape) if isinstance(shape, Iterable) else (shape,)
        return self._raw["reshape"](x, sizes)

    def broadcast_to(self, x: Tensor, /, shape: Shape) -> Tensor:
        return self._raw["broadcast_to"](x, tuple(shape))

    def broadcast_arrays(self, *arrays: Tensor) -> tuple[Tensor, ...]:
        shape = joint_shape(*(tuple(x.shape) for x in arrays))
        return tuple(self._raw["broadcast_to"](x, shape) for x in arrays)

    def broadcast_shapes(self, *shapes: Shape) -> tuple[int, ...]:
        return joint_shape(*shapes)

    def expand_dims(self, x: Tensor, /, axis: Integers) -> Tensor:
        new_axes = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
        for new_axis in sorted(axes_of(new_axes, len(x.shape) + len(new_axes))):
            x = self._raw["expand_dims"](x, new_axis)
        return x

    def squeeze(self, x: Tensor, /, axis: Integers) -> Tensor:
        axes = axes_of(axis, len(x.shape))
        if any(x.shape[i] not in (1, None) for i in axes):
            raise ArgumentError(
                f"squeeze of axis {axis!r}, but the shape is {tuple(x.shape)}; "
                "name axes of length 1"
            )
        if not axes:
            return x
        return self._raw["squeeze"](x, axes)

    def flip(self, x: Tensor, /, *, axis: Axes = None) -> Tensor:
        axes = axes_of(axis, len(x.shape))
        if not axes:
            return x
        return self._raw["flip"](x, axes)

    def roll(self, x: Tensor, /, shift: Integers, *, axis: Axes = None) -> Tensor:
        if axis is None:
            rolled = self._raw["roll"](self._flat(x), (shift,), (0,))
            return self._raw["reshape"](rolled, tuple(x.shape))
        axes = axes_of(axis, len(x.shape))
        if isinstance(shift, (tuple, list)):
            shifts = tuple(shift)
        else:
            shifts = (shift,) * len(axes)
        return self._raw["roll"](x, shifts, axes)

    def tile(self, x: Tensor, repetitions: Sequence[int], /) -> Tensor:
        new_axes = len(repetitions) - len(x.shape)
        if new_axes > 0:
            x = self._raw["reshape"](x, (1,) * new_axes + tuple(x.shape))
        # a negative number of ones is no ones
        return self._raw["tile"](x, (1,) * -new_axes + tuple(repetitions))

    def repeat(self, x: Tensor, repeats: Operand, /, *, axis: int | None = None) -> Tensor:
        if axis is None:
            x = self._flat(x)
            axis = 0
        (along,) = axes_of(axis, len(x.shape))
        if self._dtypes.dtype_name(repeats) is not None:
            # a tensor of one number is for all elements
            counts = self._dtypes.cast(repeats, INTEGER)
            repeats = self._raw["broadcast_to"](counts, (x.shape[along],))
        return self._raw["repeat"](x, repeats, along)

    def concat(self, arrays: Sequence[Tensor], /, *, axis: int | None = 0) -> Tensor:
        parts = self._promote(*arrays)
        if axis is None:
            flat_parts = [self._flat(part) for part in parts]
            return self._raw["concat"](flat_parts, 0)
        return self._raw["concat"](parts, *axes_of(axis, len(parts[0].shape)))

    def stack(self, arrays: Sequence[Tensor], /, *, axis: int = 0) -> Tensor:
        parts = self._promote(*arrays)
        return self._raw["stack"](parts, *axes_of(axis, len(parts[0].shape) + 1))

    def unstack(self, x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
        return self._several("unstack", x, *axes_of(axis, len(x.shape)))

    def meshgrid(self, *arrays: Tensor, indexing: str = "xy") -> tuple[Tensor, ...]:
        one_of(indexing, ("xy", "ij"), "indexing")
        ndim = len(arrays)
        axes = list(range(ndim))  # the axis of each array, and the array of each axis
        if indexing == "xy":
            axes[:2] = reversed(axes[:2])
        shape = tuple(arrays[i].shape[0] for i in axes)
        grids = []
        for x, axis in zip(arrays, axes, strict=True):
            line_shape = [1] * ndim
            line_shape[axis] = -1
            line = self._raw["reshape"](x, tuple(line_shape))
            grids.append(self._raw["broadcast_to"](line, shape))
        return tuple(grids)
