"""Functions that change the shape of tensors, or join them."""

from typing import Any

from xdevice.errors import ArgumentError
from xdevice.kit.standard.axes import axes_of, broadcast_shapes, no_copy, one_of
from xdevice.kit.standard.promotion import INTEGER, Operations


class Shapes(Operations):
    def permute_dims(self, x: Any, /, axes: Any) -> Any:
        return self._raw["permute_dims"](x, axes_of(tuple(axes), len(x.shape)))

    def moveaxis(self, x: Any, source: Any, destination: Any, /) -> Any:
        ndim = len(x.shape)
        moved = dict(zip(axes_of(destination, ndim), axes_of(source, ndim), strict=True))
        rest = iter([i for i in range(ndim) if i not in moved.values()])
        return self._raw["permute_dims"](x, tuple(moved[i] if i in moved else next(rest) for i in range(ndim)))

    def reshape(self, x: Any, /, shape: Any, *, copy: bool | None = None) -> Any:
        no_copy(copy)
        return self._raw["reshape"](x, tuple(shape) if hasattr(shape, "__iter__") else (shape,))

    def broadcast_to(self, x: Any, /, shape: Any) -> Any:
        return self._raw["broadcast_to"](x, tuple(shape))

    def broadcast_arrays(self, *arrays: Any) -> tuple[Any, ...]:
        shape = broadcast_shapes(*(tuple(x.shape) for x in arrays))
        return tuple(self._raw["broadcast_to"](x, shape) for x in arrays)

    def broadcast_shapes(self, *shapes: Any) -> tuple[int, ...]:
        return broadcast_shapes(*shapes)

    def expand_dims(self, x: Any, /, axis: Any) -> Any:
        given = axis if isinstance(axis, (tuple, list)) else (axis,)
        for each in sorted(axes_of(tuple(given), len(x.shape) + len(given))):
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
            rolled = self._raw["roll"](self._raw["reshape"](x, (-1,)), (shift,), (0,))
            return self._raw["reshape"](rolled, tuple(x.shape))
        axes = axes_of(axis, len(x.shape))
        return self._raw["roll"](x, tuple(shift) if isinstance(shift, (tuple, list)) else (shift,) * len(axes), axes)

    def tile(self, x: Any, repetitions: Any, /) -> Any:
        more = len(repetitions) - len(x.shape)
        x = self._raw["reshape"](x, (1,) * more + tuple(x.shape)) if more > 0 else x
        return self._raw["tile"](x, (1,) * -more + tuple(repetitions))

    def repeat(self, x: Any, repeats: Any, /, *, axis: int | None = None) -> Any:
        if axis is None:
            x, axis = self._raw["reshape"](x, (-1,)), 0
        (along,) = axes_of(axis, len(x.shape))
        if self._dtypes.dtype_name(repeats) is not None:  # one number may stand for all
            repeats = self._raw["broadcast_to"](self._dtypes.cast(repeats, INTEGER), (x.shape[along],))
        return self._raw["repeat"](x, repeats, along)

    def concat(self, arrays: Any, /, *, axis: int | None = 0) -> Any:
        parts = self._promote(*arrays)
        if axis is None:
            return self._raw["concat"]([self._raw["reshape"](part, (-1,)) for part in parts], 0)
        return self._raw["concat"](parts, *axes_of(axis, len(parts[0].shape)))

    def stack(self, arrays: Any, /, *, axis: int = 0) -> Any:
        parts = self._promote(*arrays)
        return self._raw["stack"](parts, *axes_of(axis, len(parts[0].shape) + 1))

    def unstack(self, x: Any, /, *, axis: int = 0) -> tuple[Any, ...]:
        return tuple(self._raw["unstack"](x, *axes_of(axis, len(x.shape))))

    def meshgrid(self, *arrays: Any, indexing: str = "xy") -> tuple[Any, ...]:
        one_of(indexing, ("xy", "ij"), "indexing")
        swapped = indexing == "xy" and len(arrays) > 1
        order = [1, 0, *range(2, len(arrays))] if swapped else range(len(arrays))
        places = dict(zip(order, range(len(arrays)), strict=True))  # which axis each array lies along
        sizes = tuple(arrays[i].shape[0] for i in order)
        shapes = [tuple(-1 if places[i] == j else 1 for j in range(len(arrays))) for i in range(len(arrays))]
        lying = (self._raw["reshape"](x, shape) for x, shape in zip(arrays, shapes, strict=True))
        return tuple(self._raw["broadcast_to"](x, sizes) for x in lying)
