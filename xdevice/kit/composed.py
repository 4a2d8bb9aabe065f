"""Functions of the array API standard that are built of others, and those with arguments of many forms."""

from __future__ import annotations

from xdevice.errors import ArgumentError
from xdevice.kit.standard import FLOAT, INTEGER, axes_of, no_copy, real, size_of, truth, wide

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

_NDIM_OF_A_MATRIX = 2


class Composed:
    """The functions, each a method of the standard's name.

    ``raw``: the framework's operations; ``f``: the functions that need no more than a dtype or an axis put right.
    """

    def __init__(
        self, raw: Mapping[str, Any], f: Mapping[str, Any], dtypes: Any, promote: Callable[..., list[Any]]
    ) -> None:
        self.raw, self.f, self.dtypes, self.promote = raw, f, dtypes, promote

    def square(self, x: Any, /) -> Any:
        return self.f["multiply"](x, x)

    def reciprocal(self, x: Any, /) -> Any:
        return self.f["divide"](1, x)

    def where(self, condition: Any, x1: Any, x2: Any, /) -> Any:
        if self.dtypes.dtype_name(x1) is None and self.dtypes.dtype_name(x2) is None:  # numbers of Python's
            x1 = self.dtypes.number(x1, FLOAT if isinstance(x1, float) or isinstance(x2, float) else INTEGER, condition)
        return self.raw["where"](truth(condition, self.dtypes), *self.promote(x1, x2))

    def clip(self, x: Any, /, min: Any = None, max: Any = None) -> Any:
        name = self.dtypes.dtype_name(x)
        for bound, limit in ((min, "maximum"), (max, "minimum")):
            if bound is not None:
                x = self.f[limit](x, bound)
        return x if self.dtypes.dtype_name(x) == name else self.dtypes.cast(x, name)

    def logaddexp(self, x1: Any, x2: Any, /) -> Any:
        x1, x2 = self.promote(x1, x2, least=FLOAT)
        # of equal numbers the difference is 0, also where both are infinite
        apart = self.where(self.f["equal"](x1, x2), 0.0, self.f["abs"](self.f["subtract"](x1, x2)))
        return self.f["add"](self.f["maximum"](x1, x2), self.f["log1p"](self.f["exp"](self.f["negative"](apart))))

    def full_like(self, x: Any, /, fill_value: Any, *, dtype: Any = None) -> Any:
        zeros = self.f["zeros_like"](x, dtype=dtype)
        return (
            self.f["add"](zeros, fill_value)
            if self.dtypes.dtype_name(zeros) != "bool"
            else self.f["equal"](zeros, not fill_value)
        )

    def astype(self, x: Any, dtype: Any, /, *, copy: bool = True) -> Any:
        return self.dtypes.cast(x, dtype) if copy or self.dtypes.cast(x, dtype) is not x else x

    def var(self, x: Any, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Any:
        x = real(x, self.dtypes)
        apart = self.f["subtract"](x, self.f["mean"](x, axis=axis, keepdims=True))
        found = self.f["mean"](self.square(apart), axis=axis, keepdims=keepdims)
        if not correction:
            return found
        n = size_of(x.shape, axes_of(axis, len(x.shape)))
        return self.f["multiply"](found, n / (n - correction) if n > correction else float("inf"))

    def std(self, x: Any, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Any:
        return self.f["sqrt"](self.var(x, axis=axis, correction=correction, keepdims=keepdims))

    def count_nonzero(self, x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
        return self.f["sum"](truth(x, self.dtypes), axis=axis, keepdims=keepdims)

    def cumulative_sum(self, x: Any, /, *, axis: Any = None, dtype: Any = None, include_initial: bool = False) -> Any:
        along = _one_axis(x, axis, "cumulative_sum")
        found = self.raw["cumulative_sum"](wide(x, dtype, self.dtypes), along)
        if not include_initial:
            return found
        shape = [1 if i == along else n for i, n in enumerate(x.shape)]
        zeros = self.raw["broadcast_to"](self.dtypes.number(0, self.dtypes.dtype_name(found), found), tuple(shape))
        return self.raw["concat"]([zeros, found], along)

    def matmul(self, x1: Any, x2: Any, /) -> Any:
        x1, x2 = self.promote(x1, x2)
        if not x1.shape or not x2.shape:
            raise ArgumentError("matmul was given a single number; use multiply")
        row, column = len(x1.shape) == 1, len(x2.shape) == 1
        left = self.raw["expand_dims"](x1, 0) if row else x1
        right = self.raw["expand_dims"](x2, 1) if column else x2
        found = self.raw["matmul"](left, right)
        ndim = len(found.shape)
        flat = ((ndim - 2,) if row else ()) + ((ndim - 1,) if column else ())
        return self.raw["squeeze"](found, flat) if flat else found

    def matrix_transpose(self, x: Any, /) -> Any:
        ndim = len(x.shape)
        if ndim < _NDIM_OF_A_MATRIX:
            raise ArgumentError(f"matrix_transpose was given a tensor of {ndim} axes; give 2 or more")
        return self.raw["permute_dims"](x, (*range(ndim - 2), ndim - 1, ndim - 2))

    def vecdot(self, x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
        product = self.f["multiply"](x1, x2)
        return self.raw["sum"](product, axes_of(axis, len(product.shape)), False)

    def tensordot(self, x1: Any, x2: Any, /, *, axes: Any = 2) -> Any:
        x1, x2 = self.promote(x1, x2)
        n1, n2 = len(x1.shape), len(x2.shape)
        if isinstance(axes, int):
            axes = (range(n1 - axes, n1), range(axes))
        over1, over2 = axes_of(tuple(axes[0]), n1), axes_of(tuple(axes[1]), n2)
        rest1, rest2 = ([i for i in range(n) if i not in over] for n, over in ((n1, over1), (n2, over2)))
        middle = size_of(x1.shape, over1)
        left = self.raw["reshape"](
            self.raw["permute_dims"](x1, (*rest1, *over1)), (size_of(x1.shape, tuple(rest1)), middle)
        )
        right = self.raw["reshape"](
            self.raw["permute_dims"](x2, (*over2, *rest2)), (middle, size_of(x2.shape, tuple(rest2)))
        )
        shape = (*(x1.shape[i] for i in rest1), *(x2.shape[i] for i in rest2))
        return self.raw["reshape"](self.raw["matmul"](left, right), shape)

    def permute_dims(self, x: Any, /, axes: Any) -> Any:
        return self.raw["permute_dims"](x, axes_of(tuple(axes), len(x.shape)))

    def moveaxis(self, x: Any, source: Any, destination: Any, /) -> Any:
        ndim = len(x.shape)
        moved = dict(zip(axes_of(destination, ndim), axes_of(source, ndim), strict=True))
        rest = iter([i for i in range(ndim) if i not in moved.values()])
        return self.raw["permute_dims"](x, tuple(moved[i] if i in moved else next(rest) for i in range(ndim)))

    def reshape(self, x: Any, /, shape: Any, *, copy: bool | None = None) -> Any:
        no_copy(copy)
        return self.raw["reshape"](x, tuple(shape) if isinstance(shape, (tuple, list)) else (shape,))

    def broadcast_to(self, x: Any, /, shape: Any) -> Any:
        return self.raw["broadcast_to"](x, tuple(shape))

    def broadcast_arrays(self, *arrays: Any) -> tuple[Any, ...]:
        import numpy as np

        shape = np.broadcast_shapes(*(tuple(x.shape) for x in arrays))
        return tuple(self.raw["broadcast_to"](x, shape) for x in arrays)

    def expand_dims(self, x: Any, /, *, axis: Any = 0) -> Any:
        given = axis if isinstance(axis, (tuple, list)) else (axis,)
        for each in sorted(axes_of(tuple(given), len(x.shape) + len(given))):
            x = self.raw["expand_dims"](x, each)
        return x

    def squeeze(self, x: Any, /, axis: Any) -> Any:
        axes = axes_of(axis, len(x.shape))
        if any(x.shape[i] not in (1, None) for i in axes):
            raise ArgumentError(f"squeeze of axis {axis!r}, but the shape is {tuple(x.shape)}; name axes of length 1")
        return self.raw["squeeze"](x, axes) if axes else x

    def flip(self, x: Any, /, *, axis: Any = None) -> Any:
        axes = axes_of(axis, len(x.shape))
        return self.raw["flip"](x, axes) if axes else x

    def roll(self, x: Any, /, shift: Any, *, axis: Any = None) -> Any:
        if axis is None:
            return self.raw["reshape"](self.raw["roll"](self.raw["reshape"](x, (-1,)), (shift,), (0,)), tuple(x.shape))
        axes = axes_of(axis, len(x.shape))
        return self.raw["roll"](x, tuple(shift) if isinstance(shift, (tuple, list)) else (shift,) * len(axes), axes)

    def tile(self, x: Any, repetitions: Any, /) -> Any:
        more = len(repetitions) - len(x.shape)
        x = self.raw["reshape"](x, (1,) * more + tuple(x.shape)) if more > 0 else x
        return self.raw["tile"](x, (1,) * -more + tuple(repetitions))

    def repeat(self, x: Any, repeats: Any, /, *, axis: int | None = None) -> Any:
        if axis is None:
            return self.raw["repeat"](self.raw["reshape"](x, (-1,)), repeats, 0)
        return self.raw["repeat"](x, repeats, *axes_of(axis, len(x.shape)))

    def concat(self, arrays: Any, /, *, axis: int | None = 0) -> Any:
        parts = self.promote(*arrays)
        if axis is None:
            return self.raw["concat"]([self.raw["reshape"](part, (-1,)) for part in parts], 0)
        return self.raw["concat"](parts, *axes_of(axis, len(parts[0].shape)))

    def stack(self, arrays: Any, /, *, axis: int = 0) -> Any:
        parts = self.promote(*arrays)
        return self.raw["stack"](parts, *axes_of(axis, len(parts[0].shape) + 1))

    def unstack(self, x: Any, /, *, axis: int = 0) -> tuple[Any, ...]:
        return tuple(self.raw["unstack"](x, *axes_of(axis, len(x.shape))))

    def meshgrid(self, *arrays: Any, indexing: str = "xy") -> tuple[Any, ...]:
        if indexing not in ("xy", "ij"):
            raise ArgumentError(f"indexing={indexing!r} is neither 'xy' nor 'ij'; give one of them")
        swapped = indexing == "xy" and len(arrays) > 1
        order = [1, 0, *range(2, len(arrays))] if swapped else range(len(arrays))
        places = dict(zip(order, range(len(arrays)), strict=True))  # which axis each array lies along
        sizes = tuple(arrays[i].shape[0] for i in order)
        shapes = [tuple(-1 if places[i] == j else 1 for j in range(len(arrays))) for i in range(len(arrays))]
        return tuple(
            self.raw["broadcast_to"](self.raw["reshape"](x, s), sizes) for x, s in zip(arrays, shapes, strict=True)
        )

    def take(self, x: Any, indices: Any, /, *, axis: int | None = None) -> Any:
        return self.raw["take"](x, indices, _one_axis(x, axis, "take"))

    def take_along_axis(self, x: Any, indices: Any, /, *, axis: int = -1) -> Any:
        return self.raw["take_along_axis"](x, indices, *axes_of(axis, len(x.shape)))

    def argmax(self, x: Any, /, *, axis: int | None = None, keepdims: bool = False) -> Any:
        return self._extreme(self.raw["argmax"], x, axis, keepdims)

    def argmin(self, x: Any, /, *, axis: int | None = None, keepdims: bool = False) -> Any:
        return self._extreme(self.raw["argmin"], x, axis, keepdims)

    def _extreme(self, op: Callable[..., Any], x: Any, axis: int | None, keepdims: bool) -> Any:
        if axis is not None:
            return op(x, *axes_of(axis, len(x.shape)), keepdims)
        found = op(self.raw["reshape"](x, (-1,)), 0, False)
        return self.raw["reshape"](found, (1,) * len(x.shape)) if keepdims else found

    def sort(self, x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
        return self.raw["sort"](x, *axes_of(axis, len(x.shape)), descending)

    def argsort(self, x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
        return self.raw["argsort"](x, *axes_of(axis, len(x.shape)), descending)

    def searchsorted(self, x1: Any, x2: Any, /, *, side: str = "left", sorter: Any = None) -> Any:
        if side not in ("left", "right"):
            raise ArgumentError(f"side={side!r} is neither 'left' nor 'right'; give one of them")
        ordered = x1 if sorter is None else self.raw["take"](x1, sorter, 0)
        return self.raw["searchsorted"](*self.promote(ordered, x2), side == "right")

    def unique_values(self, x: Any, /) -> Any:
        return self.raw["unique_values"](self.raw["reshape"](x, (-1,)))


def _one_axis(x: Any, axis: int | None, what: str) -> int:
    if axis is None and len(x.shape) != 1:
        raise ArgumentError(f"{what} of a tensor of {len(x.shape)} axes needs one of them; give axis=0, say")
    return axes_of(0 if axis is None else axis, len(x.shape))[0]
