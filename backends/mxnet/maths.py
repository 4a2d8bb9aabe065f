"""MXNet's operations, for the array API standard."""

import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import mxnet as mx
import numpy as np
from mxnet.ndarray import NDArray

from xdevice.backends.mxnet import creation
from xdevice.contract import Extension
from xdevice.errors import NotSupportedError
from xdevice.kit.standard import standard
from xdevice.kit.standard.linalg import linear_algebra
from xdevice.kit.standard.widening import Widening

_np: Any = mx.np
_npx: Any = mx.npx
_linalg, _nd_linalg = _np.linalg, mx.nd.linalg
dtype = creation.dtype
dtypes: Any = sys.modules[__name__]  # this module has what the kit asks of `Dtypes`
_REFUSALS = ("Unknown type", "type enum", "not support", "ndarrays", "data type", "dtype")
_widened = Widening("mxnet", dtypes, (mx.MXNetError, TypeError), _REFUSALS).all


def namespace() -> Mapping[str, Any]:
    return _with_shapes({**standard(_widened(_RAW), dtypes), "from_dlpack": _from_dlpack})


def module() -> Any:
    return mx.np


def name_of(dtype: Any) -> str:
    return str(np.dtype(dtype).name)


def dtype_name(x: Any) -> str | None:
    return np.dtype(x.dtype).name if isinstance(x, NDArray) else None


def cast(x: Any, dtype: Any) -> Any:
    return x.astype(dtype)


def number(value: Any, name: str, like: Any) -> Any:
    return _np.array(value, name, ctx=like.ctx)  # mx.np.full makes 0.0 of -0.0


def operand(value: Any, name: str, like: Any) -> Any:
    """The plain number among floats: its operations, and their gradients, take half the time."""
    return float(value) if np.dtype(name).kind == "f" else number(value, name, like)


def _from_dlpack(x: Any, /) -> Any:
    found = mx.nd.from_dlpack(x.__dlpack__()).as_np_ndarray()
    if (
        dtype(name_of(found.dtype)) is None
    ):  # MXNet 1.9.1 takes other dtypes for one of its own, and so other numbers
        raise TypeError(f"mxnet has no dtype for the numbers of a {type(x).__name__}")
    return found


def _with_shapes(functions: Mapping[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """The functions, with the shapes that NumPy has: of single numbers, and of none."""
    return {name: mx.util.use_np_shape(function) for name, function in functions.items()}


def _reduced(
    op: Callable[..., Any], of_nothing: float, x: Any, axes: tuple[int, ...], keepdims: bool
) -> Any:
    """A reduction; of no numbers MXNet 1.9.1 always makes 0, or no array of the right shape."""
    if x.size:
        return op(x, axis=axes, keepdims=keepdims)
    shape = [1 if i in axes else n for i, n in enumerate(x.shape) if keepdims or i not in axes]
    return _np.full(tuple(shape), of_nothing, dtype=x.dtype, ctx=x.ctx)


def _as_bytes(op: Callable[..., Any]) -> Callable[..., Any]:
    """An operation that MXNet has for every dtype but booleans."""
    return lambda x, *args: (
        op(x.astype("uint8"), *args).astype("bool") if x.dtype == np.bool_ else op(x, *args)
    )


def _in_floats(op: Callable[..., Any], x1: Any, x2: Any) -> Any:
    """An operation that MXNet has for floats only; integers are exact up to 2**53."""
    if any(isinstance(x, float) or np.dtype(x.dtype).kind == "f" for x in (x1, x2)):
        return op(x1, x2)
    return op(x1.astype("float64"), x2.astype("float64")).astype(x1.dtype)


def _remainder(x1: Any, x2: Any) -> Any:
    """MXNet 1.9.1 takes the remainder of a division by 0 for 0; the term added is nan there, and 0 elsewhere."""
    found = _np.mod(x1, x2)
    return found + _np.true_divide(0.0, x2) if np.dtype(found.dtype).kind == "f" else found


def _extreme(op: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, axis, keep: (
        _np.expand_dims(op(x, axis=axis), axis) if keep else op(x, axis=axis)
    )


def _argsort(x: Any, axis: int, descending: bool) -> Any:
    """By NumPy, on the host: MXNet 1.9.1 gives equal numbers beyond the first 16 in any order."""
    numbers = (
        np.flip(x.asnumpy(), axis) if descending else x.asnumpy()
    )  # turned around: equal ones keep their order
    places = np.argsort(numbers, axis=axis, kind="stable")
    places = numbers.shape[axis] - 1 - np.flip(places, axis) if descending else places
    return _np.array(places, dtype="int64", ctx=x.ctx)


def _at(index: Any, axis: int) -> tuple[Any, ...]:
    """The key of that index, or slice, along the axis."""
    return (*(slice(None),) * axis, index)


def _cumulative_prod(x: Any, axis: int) -> Any:
    """Each number times the one before it, then times what is two before it, then four: MXNet has no such function."""
    length, step = x.shape[axis], 1
    while step < length:
        further = x[_at(slice(step, None), axis)] * x[_at(slice(0, length - step), axis)]
        x, step = _np.concatenate([x[_at(slice(0, step), axis)], further], axis=axis), 2 * step
    return x


def _shift(op: Callable[..., Any]) -> Callable[..., Any]:
    """A shift of bits, as a product with or a quotient by a power of 2: one that is finite."""
    return partial(
        _in_floats, lambda x1, x2: _np.floor(op(x1, _np.power(2.0, _np.minimum(x2, 64.0))))
    )


def _take_along_axis(x: Any, indices: Any, axis: int) -> Any:
    """By one index for each axis; MXNet's own function of that name has no gradient."""
    rank = len(x.shape)
    counted = (_np.arange(n, dtype="int64", ctx=indices.ctx) for n in x.shape)
    places = [_np.reshape(each, _sized(-1, i, rank)) for i, each in enumerate(counted)]
    places[axis] = indices.astype("int64")
    return _npx.gather_nd(
        x, _np.stack([_np.broadcast_to(place, indices.shape) for place in places])
    )


def _sized(length: int, axis: int, rank: int) -> tuple[int, ...]:
    """A shape of that length along the axis, and 1 along the others."""
    return tuple(length if i == axis else 1 for i in range(rank))


def _searchsorted(ordered: Any, values: Any, right: bool) -> Any:
    """How many are smaller, or not greater."""
    one = _np.expand_dims(values, -1)
    return _RAW["sum"](
        (ordered <= one if right else ordered < one).astype("int64"), (values.ndim,), False
    )


def _repeat(x: Any, repeats: Any, axis: int) -> Any:
    if isinstance(repeats, int) and not repeats:  # MXNet 1.9.1 then gives another shape
        return x[_at(slice(0, 0), axis)]
    if isinstance(repeats, NDArray):  # it takes no array of them
        places = np.repeat(np.arange(x.shape[axis]), repeats.asnumpy())
        return _RAW["take"](x, _np.array(places, dtype="int64", ctx=x.ctx), axis)
    return _np.repeat(x, repeats, axis=axis)


def _tile(x: Any, repetitions: tuple[int, ...]) -> Any:
    """Along one axis after the other: along three at once MXNet 1.9.1 fails."""
    for axis, times in enumerate(repetitions):
        x = x if times == 1 else _np.tile(x, _sized(times, axis, len(x.shape)))
    return x


def _where(condition: Any, x1: Any, x2: Any) -> Any:
    shape = np.broadcast_shapes(condition.shape, x1.shape, x2.shape)
    if 0 in shape:  # MXNet 1.9.1 ends the process then, with a segmentation fault
        return _np.zeros(shape, dtype=x1.dtype, ctx=x1.ctx)
    return _np.where(condition, x1, x2)


def _like(make: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, /, *, dtype=None: make(x.shape, dtype=np.dtype(dtype or x.dtype), ctx=x.ctx)


def _triu(x: Any, /, *, k: int = 0) -> Any:
    return _np.where(
        _np.tril(_np.ones(x.shape, dtype="uint8", ctx=x.ctx), k - 1), _np.zeros_like(x), x
    )


_SAME = (
    "add bitwise_and bitwise_or bitwise_xor broadcast_to ceil cos cosh equal exp expand_dims expm1 floor greater "
    "greater_equal hypot isfinite isinf isnan less less_equal log log10 log1p log2 logical_not maximum minimum "
    "multiply not_equal reshape round sin sinh sqrt squeeze subtract tan tanh trunc"
)

_OF_NOTHING = {
    "all": True,
    "any": False,
    "max": 0,
    "min": 0,
    "sum": 0,
    "mean": float("nan"),
    "prod": 1,
}

_RAW: dict[str, Callable[..., Any]] = {
    **{name: getattr(_np, name) for name in _SAME.split()},
    **{
        f"a{name}": getattr(_np, f"arc{name}")
        for name in ("cos", "cosh", "sin", "sinh", "tan", "tanh")
    },
    "abs": lambda x, /: _np.abs(x),
    "negative": lambda x, /: _np.negative(x),
    # MXNet 1.9.1 takes the sign of nan for 0
    "sign": lambda x, /: (
        _np.sign(x) if np.dtype(x.dtype).kind != "f" else _where(_np.isnan(x), x, _np.sign(x))
    ),
    "bitwise_invert": lambda x, /: _np.bitwise_not(x),
    "nonzero": lambda x, /: tuple(_npx.nonzero(x).T),
    **{f"{name}_like": _like(getattr(_np, name)) for name in ("empty", "ones", "zeros")},
    "tril": lambda x, /, *, k=0: _as_bytes(_np.tril)(x, k),
    "triu": _triu,
    # of two tensors of one dtype
    "atan2": _np.arctan2,
    "bitwise_left_shift": _shift(_np.multiply),
    "bitwise_right_shift": _shift(_np.true_divide),
    "divide": _np.true_divide,
    "floor_divide": partial(_in_floats, lambda x1, x2: _np.floor(_np.true_divide(x1, x2))),
    "pow": _np.power,
    "remainder": _remainder,
    "logical_and": _np.multiply,  # of booleans, as are these all
    "logical_or": _np.add,
    "logical_xor": _np.not_equal,
    "where": _where,
    # along axes
    **{
        name: partial(_reduced, getattr(_np, name), of_nothing)
        for name, of_nothing in _OF_NOTHING.items()
    },
    **{name: _extreme(getattr(_np, name)) for name in ("argmax", "argmin")},
    "cumulative_prod": _cumulative_prod,
    "cumulative_sum": lambda x, axis: (
        _np.cumsum(x, axis=axis) if x.size else x.copy()
    ),  # 1.9.1: another shape
    "sort": lambda x, axis, down: (
        _np.flip(_np.sort(x, axis=axis), axis) if down else _np.sort(x, axis=axis)
    ),
    "argsort": _argsort,
    # of shapes
    "concat": lambda arrays, axis: _np.concatenate(arrays, axis=axis),
    **{name: _as_bytes(getattr(_np, name)) for name in ("flip", "roll")},
    "matmul": partial(_in_floats, _np.matmul),
    "permute_dims": _as_bytes(_np.transpose),
    "repeat": _repeat,
    "stack": lambda arrays, axis: _np.stack(arrays, axis=axis),
    "tile": _tile,
    "unstack": lambda x, axis: [x[_at(i, axis)] for i in range(x.shape[axis])],
    "take": lambda x, indices, axis: _np.take(x, indices, axis=axis, mode="wrap"),
    "take_along_axis": _take_along_axis,
    "searchsorted": _searchsorted,
}


def _turned(x: Any) -> Any:
    return _np.swapaxes(x, -1, -2)


def _svd(x: Any, full: bool) -> Any:
    if full:
        raise NotSupportedError("mxnet has no full matrices in svd; pass full_matrices=False")
    if x.shape[-2] <= x.shape[-1]:  # MXNet takes no others
        return _linalg.svd(x)
    v, s, uh = _linalg.svd(_turned(x))
    return _turned(uh), s, _turned(v)


def _qr(x: Any, complete: bool) -> tuple[Any, Any]:
    """By the LQ decomposition of the transposed matrix: MXNet's own qr fails with NumPy 2."""
    rows, columns = x.shape[-2:]
    if complete and rows > columns:
        raise NotSupportedError("mxnet has no complete qr; use mode='reduced'")
    square = x if rows >= columns else x[(..., slice(0, rows))]
    q, lower = _nd_linalg.gelqf(_turned(square).as_nd_ndarray())
    q, upper = _turned(q.as_np_ndarray()), _turned(lower.as_np_ndarray())
    return q, upper if rows >= columns else _np.matmul(_turned(q), x)


_OF_MATRICES: dict[str, Callable[..., Any]] = {
    **{
        name: getattr(_linalg, name)
        for name in ("cholesky", "det", "eigh", "inv", "slogdet", "solve")
    },
    "qr": _qr,
    "svd": _svd,
}
linalg = Extension(
    lambda: _with_shapes(linear_algebra(_widened(_OF_MATRICES), namespace(), dtypes)), mx.np.linalg
)
