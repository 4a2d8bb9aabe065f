"""Functions of the array API standard that are built of others, and those with arguments of many forms."""

from __future__ import annotations

from xdevice.errors import ArgumentError
from xdevice.standard import FLOAT, INTEGER, axes_of, no_copy, real, size_of, truth, wide

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

_NDIM_OF_A_MATRIX = 2


def functions(
    raw: Mapping[str, Any], plain: Mapping[str, Any], dtypes: Any, promote: Callable[..., list[Any]]
) -> dict[str, Any]:
    """Each by its name. ``plain``: the functions that need no more than a dtype or an axis put right."""
    groups = (_elementwise, _reductions, _matrices, _shapes, _joins, _indexing, _sorting)
    made: dict[str, Any] = {}
    for group in groups:
        made |= group(raw, {**plain, **made}, dtypes, promote)
    return made


def _elementwise(raw: Any, f: Any, dtypes: Any, promote: Any) -> dict[str, Any]:
    def square(x: Any, /) -> Any:
        return f["multiply"](x, x)

    def reciprocal(x: Any, /) -> Any:
        return f["divide"](1, x)

    def where(condition: Any, x1: Any, x2: Any, /) -> Any:
        if dtypes.dtype_name(x1) is None and dtypes.dtype_name(x2) is None:  # numbers of Python's
            x1 = dtypes.number(x1, FLOAT if isinstance(x1, float) or isinstance(x2, float) else INTEGER, condition)
        return raw["where"](truth(condition, dtypes), *promote(x1, x2))

    def clip(x: Any, /, min: Any = None, max: Any = None) -> Any:
        name = dtypes.dtype_name(x)
        for bound, limit in ((min, "maximum"), (max, "minimum")):
            if bound is not None:
                x = f[limit](x, bound)
        return x if dtypes.dtype_name(x) == name else dtypes.cast(x, name)

    def logaddexp(x1: Any, x2: Any, /) -> Any:
        x1, x2 = promote(x1, x2, least=FLOAT)
        # of equal numbers the difference is 0, also where both are infinite
        apart = where(f["equal"](x1, x2), 0.0, f["abs"](f["subtract"](x1, x2)))
        return f["add"](f["maximum"](x1, x2), f["log1p"](f["exp"](f["negative"](apart))))

    def full_like(x: Any, /, fill_value: Any, *, dtype: Any = None) -> Any:
        zeros = f["zeros_like"](x, dtype=dtype)
        return f["add"](zeros, fill_value) if dtypes.dtype_name(zeros) != "bool" else f["equal"](zeros, not fill_value)

    def astype(x: Any, dtype: Any, /, *, copy: bool = True) -> Any:
        return dtypes.cast(x, dtype) if copy or dtypes.cast(x, dtype) is not x else x

    made = {"square": square, "reciprocal": reciprocal, "where": where, "clip": clip, "astype": astype}
    return made | ({} if "logaddexp" in f else {"logaddexp": logaddexp}) | {"full_like": full_like}


def _reductions(raw: Any, f: Any, dtypes: Any, promote: Any) -> dict[str, Any]:
    def var(x: Any, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Any:
        x = real(x, dtypes)
        apart = f["subtract"](x, f["mean"](x, axis=axis, keepdims=True))
        found = f["mean"](f["square"](apart), axis=axis, keepdims=keepdims)
        if not correction:
            return found
        n = size_of(x.shape, axes_of(axis, len(x.shape)))
        return f["multiply"](found, n / (n - correction) if n > correction else float("inf"))

    def std(x: Any, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Any:
        return f["sqrt"](var(x, axis=axis, correction=correction, keepdims=keepdims))

    def count_nonzero(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
        return f["sum"](truth(x, dtypes), axis=axis, keepdims=keepdims)

    def cumulative_sum(x: Any, /, *, axis: Any = None, dtype: Any = None, include_initial: bool = False) -> Any:
        along = _one_axis(x, axis, "cumulative_sum")
        found = raw["cumulative_sum"](wide(x, dtype, dtypes), along)
        if not include_initial:
            return found
        shape = [1 if i == along else n for i, n in enumerate(x.shape)]
        zeros = raw["broadcast_to"](dtypes.number(0, dtypes.dtype_name(found), found), tuple(shape))
        return raw["concat"]([zeros, found], along)

    return {"var": var, "std": std, "count_nonzero": count_nonzero, "cumulative_sum": cumulative_sum}


def _matrices(raw: Any, f: Any, dtypes: Any, promote: Any) -> dict[str, Any]:
    def matmul(x1: Any, x2: Any, /) -> Any:
        x1, x2 = promote(x1, x2)
        if not x1.shape or not x2.shape:
            raise ArgumentError("matmul was given a single number; use multiply")
        row, column = len(x1.shape) == 1, len(x2.shape) == 1
        left = raw["expand_dims"](x1, 0) if row else x1
        right = raw["expand_dims"](x2, 1) if column else x2
        found = raw["matmul"](left, right)
        ndim = len(found.shape)
        flat = ((ndim - 2,) if row else ()) + ((ndim - 1,) if column else ())
        return raw["squeeze"](found, flat) if flat else found

    def matrix_transpose(x: Any, /) -> Any:
        ndim = len(x.shape)
        if ndim < _NDIM_OF_A_MATRIX:
            raise ArgumentError(f"matrix_transpose was given a tensor of {ndim} axes; give 2 or more")
        return raw["permute_dims"](x, (*range(ndim - 2), ndim - 1, ndim - 2))

    def vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
        product = f["multiply"](x1, x2)
        return raw["sum"](product, axes_of(axis, len(product.shape)), False)

    def tensordot(x1: Any, x2: Any, /, *, axes: Any = 2) -> Any:
        x1, x2 = promote(x1, x2)
        n1, n2 = len(x1.shape), len(x2.shape)
        if isinstance(axes, int):
            axes = (range(n1 - axes, n1), range(axes))
        over1, over2 = axes_of(tuple(axes[0]), n1), axes_of(tuple(axes[1]), n2)
        rest1, rest2 = ([i for i in range(n) if i not in over] for n, over in ((n1, over1), (n2, over2)))
        middle = size_of(x1.shape, over1)
        left = raw["reshape"](raw["permute_dims"](x1, (*rest1, *over1)), (size_of(x1.shape, tuple(rest1)), middle))
        right = raw["reshape"](raw["permute_dims"](x2, (*over2, *rest2)), (middle, size_of(x2.shape, tuple(rest2))))
        shape = (*(x1.shape[i] for i in rest1), *(x2.shape[i] for i in rest2))
        return raw["reshape"](raw["matmul"](left, right), shape)

    return {"matmul": matmul, "matrix_transpose": matrix_transpose, "vecdot": vecdot, "tensordot": tensordot}


def _shapes(raw: Any, f: Any, dtypes: Any, promote: Any) -> dict[str, Any]:
    def permute_dims(x: Any, /, axes: Any) -> Any:
        return raw["permute_dims"](x, axes_of(tuple(axes), len(x.shape)))

    def moveaxis(x: Any, source: Any, destination: Any, /) -> Any:
        ndim = len(x.shape)
        moved = dict(zip(axes_of(destination, ndim), axes_of(source, ndim), strict=True))
        rest = iter([i for i in range(ndim) if i not in moved.values()])
        return raw["permute_dims"](x, tuple(moved[i] if i in moved else next(rest) for i in range(ndim)))

    def reshape(x: Any, /, shape: Any, *, copy: bool | None = None) -> Any:
        no_copy(copy)
        return raw["reshape"](x, tuple(shape) if isinstance(shape, (tuple, list)) else (shape,))

    def broadcast_to(x: Any, /, shape: Any) -> Any:
        return raw["broadcast_to"](x, tuple(shape))

    def broadcast_arrays(*arrays: Any) -> tuple[Any, ...]:
        import numpy as np

        shape = np.broadcast_shapes(*(tuple(x.shape) for x in arrays))
        return tuple(raw["broadcast_to"](x, shape) for x in arrays)

    def expand_dims(x: Any, /, *, axis: Any = 0) -> Any:
        given = axis if isinstance(axis, (tuple, list)) else (axis,)
        for each in sorted(axes_of(tuple(given), len(x.shape) + len(given))):
            x = raw["expand_dims"](x, each)
        return x

    def squeeze(x: Any, /, axis: Any) -> Any:
        axes = axes_of(axis, len(x.shape))
        if any(x.shape[i] not in (1, None) for i in axes):
            raise ArgumentError(f"squeeze of axis {axis!r}, but the shape is {tuple(x.shape)}; name axes of length 1")
        return raw["squeeze"](x, axes) if axes else x

    def flip(x: Any, /, *, axis: Any = None) -> Any:
        axes = axes_of(axis, len(x.shape))
        return raw["flip"](x, axes) if axes else x

    def roll(x: Any, /, shift: Any, *, axis: Any = None) -> Any:
        if axis is None:
            return raw["reshape"](raw["roll"](raw["reshape"](x, (-1,)), (shift,), (0,)), tuple(x.shape))
        axes = axes_of(axis, len(x.shape))
        return raw["roll"](x, tuple(shift) if isinstance(shift, (tuple, list)) else (shift,) * len(axes), axes)

    def tile(x: Any, repetitions: Any, /) -> Any:
        more = len(repetitions) - len(x.shape)
        x = raw["reshape"](x, (1,) * more + tuple(x.shape)) if more > 0 else x
        return raw["tile"](x, (1,) * -more + tuple(repetitions))

    def repeat(x: Any, repeats: Any, /, *, axis: int | None = None) -> Any:
        if axis is None:
            return raw["repeat"](raw["reshape"](x, (-1,)), repeats, 0)
        return raw["repeat"](x, repeats, *axes_of(axis, len(x.shape)))

    made = (permute_dims, moveaxis, reshape, broadcast_to, broadcast_arrays, expand_dims, squeeze, flip, roll, tile)
    return {function.__name__: function for function in (*made, repeat)}


def _joins(raw: Any, f: Any, dtypes: Any, promote: Any) -> dict[str, Any]:
    def concat(arrays: Any, /, *, axis: int | None = 0) -> Any:
        parts = promote(*arrays)
        if axis is None:
            return raw["concat"]([raw["reshape"](part, (-1,)) for part in parts], 0)
        return raw["concat"](parts, *axes_of(axis, len(parts[0].shape)))

    def stack(arrays: Any, /, *, axis: int = 0) -> Any:
        parts = promote(*arrays)
        return raw["stack"](parts, *axes_of(axis, len(parts[0].shape) + 1))

    def unstack(x: Any, /, *, axis: int = 0) -> tuple[Any, ...]:
        return tuple(raw["unstack"](x, *axes_of(axis, len(x.shape))))

    def meshgrid(*arrays: Any, indexing: str = "xy") -> tuple[Any, ...]:
        if indexing not in ("xy", "ij"):
            raise ArgumentError(f"indexing={indexing!r} is neither 'xy' nor 'ij'; give one of them")
        swapped = indexing == "xy" and len(arrays) > 1
        order = [1, 0, *range(2, len(arrays))] if swapped else range(len(arrays))
        places = dict(zip(order, range(len(arrays)), strict=True))  # which axis each array lies along
        sizes = tuple(arrays[i].shape[0] for i in order)
        shapes = [tuple(-1 if places[i] == j else 1 for j in range(len(arrays))) for i in range(len(arrays))]
        return tuple(raw["broadcast_to"](raw["reshape"](x, s), sizes) for x, s in zip(arrays, shapes, strict=True))

    return {"concat": concat, "stack": stack, "unstack": unstack, "meshgrid": meshgrid}


def _indexing(raw: Any, f: Any, dtypes: Any, promote: Any) -> dict[str, Any]:
    def take(x: Any, indices: Any, /, *, axis: int | None = None) -> Any:
        return raw["take"](x, indices, _one_axis(x, axis, "take"))

    def take_along_axis(x: Any, indices: Any, /, *, axis: int = -1) -> Any:
        return raw["take_along_axis"](x, indices, *axes_of(axis, len(x.shape)))

    return {"take": take, "take_along_axis": take_along_axis}


def _sorting(raw: Any, f: Any, dtypes: Any, promote: Any) -> dict[str, Any]:
    def extreme(op: Callable[..., Any]) -> Callable[..., Any]:
        def call(x: Any, /, *, axis: int | None = None, keepdims: bool = False) -> Any:
            if axis is not None:
                return op(x, *axes_of(axis, len(x.shape)), keepdims)
            found = op(raw["reshape"](x, (-1,)), 0, False)
            return raw["reshape"](found, (1,) * len(x.shape)) if keepdims else found

        return call

    def sort(x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
        return raw["sort"](x, *axes_of(axis, len(x.shape)), descending)

    def argsort(x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
        return raw["argsort"](x, *axes_of(axis, len(x.shape)), descending)

    def searchsorted(x1: Any, x2: Any, /, *, side: str = "left", sorter: Any = None) -> Any:
        if side not in ("left", "right"):
            raise ArgumentError(f"side={side!r} is neither 'left' nor 'right'; give one of them")
        ordered = x1 if sorter is None else raw["take"](x1, sorter, 0)
        return raw["searchsorted"](*promote(ordered, x2), side == "right")

    def unique_values(x: Any, /) -> Any:
        return raw["unique_values"](raw["reshape"](x, (-1,)))

    made = {"sort": sort, "argsort": argsort, "searchsorted": searchsorted, "unique_values": unique_values}
    made |= {name: extreme(raw[name]) for name in ("argmax", "argmin")}
    return {name: function for name, function in made.items() if name in raw}


def _one_axis(x: Any, axis: int | None, what: str) -> int:
    if axis is None and len(x.shape) != 1:
        raise ArgumentError(f"{what} of a tensor of {len(x.shape)} axes needs one of them; give axis=0, say")
    return axes_of(0 if axis is None else axis, len(x.shape))[0]
