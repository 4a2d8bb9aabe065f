"""MXNet's operations, for the array API standard."""

import operator
import sys
from collections.abc import Callable, Mapping
from functools import partial
from types import ModuleType
from typing import Any, TypeAlias

import mxnet as mx
import numpy as np
from mxnet.ndarray import NDArray

from xdevice.backends.kit.standard import standard
from xdevice.backends.kit.standard.linalg import linear_algebra
from xdevice.backends.kit.standard.widening import Widening
from xdevice.backends.mxnet import creation
from xdevice.contract import Extension, NativeDtype, Tensor
from xdevice.errors import NotSupportedError

Function: TypeAlias = Callable[..., Any]
Operand: TypeAlias = Any  # an array, or a plain number
Key: TypeAlias = tuple[Any, ...]  # one index or slice for each axis

_np: Any = mx.np
_npx: Any = mx.npx
_linalg, _nd_linalg = _np.linalg, mx.nd.linalg
dtype = creation.dtype
dtypes: Any = sys.modules[__name__]  # this module has what the kit asks of `Dtypes`
_REFUSALS = ("Unknown type", "type enum", "not support", "ndarrays", "data type", "dtype")
_widened = Widening("mxnet", dtypes, (mx.MXNetError, TypeError), _REFUSALS).all


def namespace() -> Mapping[str, Any]:
    return _with_shapes({**standard(_widened(_RAW), dtypes), "from_dlpack": _from_dlpack})


def module() -> ModuleType:
    native: ModuleType = mx.np
    return native


def name_of(dtype: NativeDtype) -> str:
    return str(np.dtype(dtype).name)


def dtype_name(x: Operand) -> str | None:
    return np.dtype(x.dtype).name if isinstance(x, NDArray) else None


def cast(x: Tensor, dtype: NativeDtype) -> Tensor:
    return x.astype(dtype)


def number(value: float, name: str, like: Tensor) -> Tensor:
    return _np.array(value, name, ctx=like.ctx)  # mx.np.full makes 0.0 of -0.0


def operand(value: float, name: str, like: Tensor) -> Operand:
    """The plain number among floats: its operations, and their gradients, take half the time."""
    if np.dtype(name).kind == "f":
        return float(value)
    return number(value, name, like)


sliced = operator.getitem


def _from_dlpack(x: Any, /) -> Tensor:
    array = mx.nd.from_dlpack(x.__dlpack__()).as_np_ndarray()
    # MXNet 1.9.1 treats a dtype that it lacks as one of its own, and so changes the numbers
    if dtype(name_of(array.dtype)) is None:
        raise TypeError(f"mxnet has no dtype for the numbers of a {type(x).__name__}")
    return array


def _with_shapes(functions: Mapping[str, Function]) -> dict[str, Function]:
    """The functions with NumPy's shapes, which scalars and empty arrays need."""
    return {name: mx.util.use_np_shape(function) for name, function in functions.items()}


def _is_floating(x: Tensor) -> bool:
    return bool(np.dtype(x.dtype).kind == "f")


# Elementwise


def _as_bytes(op: Function) -> Function:
    """The operation on booleans too, for which MXNet lacks it."""

    def operation(x: Tensor, *args: Any) -> Tensor:
        if x.dtype == np.bool_:
            return op(x.astype("uint8"), *args).astype("bool")
        return op(x, *args)

    return operation


def _in_floats(op: Function, x1: Operand, x2: Operand) -> Tensor:
    """An operation that MXNet has for floats only; integers are exact up to 2**53."""
    if any(isinstance(x, float) or _is_floating(x) for x in (x1, x2)):
        return op(x1, x2)
    return op(x1.astype("float64"), x2.astype("float64")).astype(x1.dtype)


def _shift(op: Function) -> Function:
    """A shift of bits: a product with a power of 2, or a quotient by one."""

    def shift(x1: Tensor, x2: Tensor) -> Tensor:
        finite_power = _np.power(2.0, _np.minimum(x2, 64.0))
        return _np.floor(op(x1, finite_power))

    return partial(_in_floats, shift)


def _floor_divide(x1: Tensor, x2: Tensor) -> Tensor:
    return _np.floor(_np.true_divide(x1, x2))


def _remainder(x1: Operand, x2: Operand) -> Tensor:
    """The remainder, which is nan for floats divided by 0; that of MXNet 1.9.1 is 0."""
    remainder = _np.mod(x1, x2)
    if not _is_floating(remainder):
        return remainder
    return remainder + _np.true_divide(0.0, x2)  # nan where x2 is 0, and 0 elsewhere


def _sign(x: Tensor, /) -> Tensor:
    """The sign, which is nan for nan; that of MXNet 1.9.1 is 0."""
    sign = _np.sign(x)
    return _where(_np.isnan(x), x, sign) if _is_floating(x) else sign


def _where(condition: Tensor, x1: Tensor, x2: Tensor) -> Tensor:
    shape = np.broadcast_shapes(condition.shape, x1.shape, x2.shape)
    if 0 in shape:  # a segmentation fault in MXNet 1.9.1
        return _np.zeros(shape, dtype=x1.dtype, ctx=x1.ctx)
    return _np.where(condition, x1, x2)


# New arrays


def _like(make: Function) -> Function:
    def make_like(x: Tensor, /, *, dtype: NativeDtype = None) -> Tensor:
        return make(x.shape, dtype=np.dtype(dtype or x.dtype), ctx=x.ctx)

    return make_like


def _tril(x: Tensor, /, *, k: int = 0) -> Tensor:
    return _as_bytes(_np.tril)(x, k)


def _triu(x: Tensor, /, *, k: int = 0) -> Tensor:
    below = _np.tril(_np.ones(x.shape, dtype="uint8", ctx=x.ctx), k - 1)
    return _np.where(below, _np.zeros_like(x), x)


# Along axes


def _at(index: int | slice, axis: int) -> Key:
    """The key of an index, or of a slice, along the axis."""
    return (*(slice(None),) * axis, index)


def _shape_along(axis: int, length: int, rank: int) -> tuple[int, ...]:
    """A shape that has this length along the axis, and 1 along the others."""
    return tuple(length if i == axis else 1 for i in range(rank))


def _reduced(
    op: Function, empty_value: float, x: Tensor, axes: tuple[int, ...], keepdims: bool
) -> Tensor:
    """A reduction. Of an empty array, that of MXNet 1.9.1 is 0, or has the wrong shape."""
    if x.size:
        return op(x, axis=axes, keepdims=keepdims)
    if keepdims:
        shape = [1 if i in axes else length for i, length in enumerate(x.shape)]
    else:
        shape = [length for i, length in enumerate(x.shape) if i not in axes]
    return _np.full(tuple(shape), empty_value, dtype=x.dtype, ctx=x.ctx)


def _extreme(op: Function) -> Function:
    """``argmax`` or ``argmin``, which may keep the axis."""

    def extreme(x: Tensor, axis: int, keepdims: bool) -> Tensor:
        indices = op(x, axis=axis)
        return _np.expand_dims(indices, axis) if keepdims else indices

    return extreme


def _sort(x: Tensor, axis: int, descending: bool) -> Tensor:
    numbers = _np.sort(x, axis=axis)
    return _np.flip(numbers, axis) if descending else numbers


def _argsort(x: Tensor, axis: int, descending: bool) -> Tensor:
    """The order by NumPy, on the host; MXNet 1.9.1 is stable for the first 16 equal numbers only.

    The descending order is the ascending one of the reversed array, reversed: it is stable too.
    """
    numbers = x.asnumpy()
    if descending:
        numbers = np.flip(numbers, axis)
    indices = np.argsort(numbers, axis=axis, kind="stable")
    if descending:
        indices = numbers.shape[axis] - 1 - np.flip(indices, axis)
    return _np.array(indices, dtype="int64", ctx=x.ctx)


def _cumulative_prod(x: Tensor, axis: int) -> Tensor:
    """The cumulative product, which MXNet lacks, by doubling.

    Each number is multiplied by the previous one, then by the one two places before it, then four.
    """
    length = x.shape[axis]
    step = 1
    while step < length:
        first = x[_at(slice(0, step), axis)]
        products = x[_at(slice(step, None), axis)] * x[_at(slice(0, length - step), axis)]
        x = _np.concatenate([first, products], axis=axis)
        step *= 2
    return x


def _cumulative_sum(x: Tensor, axis: int) -> Tensor:
    if not x.size:  # MXNet 1.9.1 returns another shape
        return x.copy()
    return _np.cumsum(x, axis=axis)


def _searchsorted(ordered: Tensor, values: Tensor, right: bool) -> Tensor:
    """For each value, how many numbers are smaller, or not greater."""
    values_as_column = _np.expand_dims(values, -1)
    precedes = ordered <= values_as_column if right else ordered < values_as_column
    return _RAW["sum"](precedes.astype("int64"), (values.ndim,), False)


# Of shapes


def _take_along_axis(x: Tensor, indices: Tensor, axis: int) -> Tensor:
    """By an array of indices for each axis; MXNet's function of this name has no gradient."""
    rank = len(x.shape)
    index_arrays = []
    for i, length in enumerate(x.shape):
        counting = _np.arange(length, dtype="int64", ctx=indices.ctx)
        index_arrays.append(_np.reshape(counting, _shape_along(i, -1, rank)))
    index_arrays[axis] = indices.astype("int64")
    broadcast = [_np.broadcast_to(array, indices.shape) for array in index_arrays]
    return _npx.gather_nd(x, _np.stack(broadcast))


def _repeat(x: Tensor, repeats: int | Tensor, axis: int) -> Tensor:
    if isinstance(repeats, int) and not repeats:  # MXNet 1.9.1 returns another shape
        return x[_at(slice(0, 0), axis)]
    if isinstance(repeats, NDArray):  # which MXNet's function does not accept
        indices = np.repeat(np.arange(x.shape[axis]), repeats.asnumpy())
        return _RAW["take"](x, _np.array(indices, dtype="int64", ctx=x.ctx), axis)
    return _np.repeat(x, repeats, axis=axis)


def _tile(x: Tensor, repetitions: tuple[int, ...]) -> Tensor:
    """Along one axis after the other: MXNet 1.9.1 fails along three at once."""
    for axis, times in enumerate(repetitions):
        if times != 1:
            x = _np.tile(x, _shape_along(axis, times, len(x.shape)))
    return x


def _unstack(x: Tensor, axis: int) -> list[Tensor]:
    return [x[_at(i, axis)] for i in range(x.shape[axis])]


# Names and signatures that MXNet shares with the standard's raw operations.
_SAME = """
    add bitwise_and bitwise_or bitwise_xor broadcast_to ceil cos cosh equal exp expand_dims expm1
    floor greater greater_equal hypot isfinite isinf isnan less less_equal log log10 log1p log2
    logical_not maximum minimum multiply not_equal reshape round sin sinh sqrt squeeze subtract tan
    tanh trunc
"""
_INVERSE_FUNCTIONS = ("cos", "cosh", "sin", "sinh", "tan", "tanh")
_EMPTY_VALUES = {
    "all": True,
    "any": False,
    "max": 0,
    "min": 0,
    "sum": 0,
    "mean": float("nan"),
    "prod": 1,
}
"""The reductions, with their results for empty arrays."""

_RAW: dict[str, Function] = {
    **{name: getattr(_np, name) for name in _SAME.split()},
    **{f"a{name}": getattr(_np, f"arc{name}") for name in _INVERSE_FUNCTIONS},
    "abs": lambda x, /: _np.abs(x),
    "negative": lambda x, /: _np.negative(x),
    "sign": _sign,
    "bitwise_invert": lambda x, /: _np.bitwise_not(x),
    "nonzero": lambda x, /: tuple(_npx.nonzero(x).T),
    **{f"{name}_like": _like(getattr(_np, name)) for name in ("empty", "ones", "zeros")},
    "tril": _tril,
    "triu": _triu,
    # of two tensors of one dtype
    "atan2": _np.arctan2,
    "bitwise_left_shift": _shift(_np.multiply),
    "bitwise_right_shift": _shift(_np.true_divide),
    "divide": _np.true_divide,
    "floor_divide": partial(_in_floats, _floor_divide),
    "pow": _np.power,
    "remainder": _remainder,
    # of booleans
    "logical_and": _np.multiply,
    "logical_or": _np.add,
    "logical_xor": _np.not_equal,
    "where": _where,
    # along axes
    **{name: partial(_reduced, getattr(_np, name), value) for name, value in _EMPTY_VALUES.items()},
    **{name: _extreme(getattr(_np, name)) for name in ("argmax", "argmin")},
    "cumulative_prod": _cumulative_prod,
    "cumulative_sum": _cumulative_sum,
    "sort": _sort,
    "argsort": _argsort,
    # of shapes
    "concat": lambda arrays, axis: _np.concatenate(arrays, axis=axis),
    **{name: _as_bytes(getattr(_np, name)) for name in ("flip", "roll")},
    "matmul": partial(_in_floats, _np.matmul),
    "permute_dims": _as_bytes(_np.transpose),
    "repeat": _repeat,
    "stack": lambda arrays, axis: _np.stack(arrays, axis=axis),
    "tile": _tile,
    "unstack": _unstack,
    "take": lambda x, indices, axis: _np.take(x, indices, axis=axis, mode="wrap"),
    "take_along_axis": _take_along_axis,
    "searchsorted": _searchsorted,
}


# Linear algebra


def _transposed(x: Tensor) -> Tensor:
    return _np.swapaxes(x, -1, -2)


def _svd(x: Tensor, full_matrices: bool) -> tuple[Tensor, Tensor, Tensor]:
    if full_matrices:
        raise NotSupportedError("mxnet has no full matrices in svd; pass full_matrices=False")
    rows, columns = x.shape[-2:]
    if rows <= columns:
        u, s, vh = _linalg.svd(x)
        return u, s, vh
    # MXNet decomposes no matrix that has more rows than columns
    v, s, uh = _linalg.svd(_transposed(x))
    return _transposed(uh), s, _transposed(v)


def _qr(x: Tensor, complete: bool) -> tuple[Tensor, Tensor]:
    """By the LQ decomposition of the transposed matrix: MXNet's own qr fails with NumPy 2."""
    rows, columns = x.shape[-2:]
    if complete and rows > columns:
        raise NotSupportedError("mxnet has no complete qr; use mode='reduced'")
    square = x if rows >= columns else x[(..., slice(0, rows))]
    q_transposed, lower = _nd_linalg.gelqf(_transposed(square).as_nd_ndarray())
    q = _transposed(q_transposed.as_np_ndarray())
    if rows >= columns:
        return q, _transposed(lower.as_np_ndarray())
    return q, _np.matmul(_transposed(q), x)


_OF_MATRICES: dict[str, Function] = {
    "cholesky": _linalg.cholesky,
    "det": _linalg.det,
    "eigh": _linalg.eigh,
    "inv": _linalg.inv,
    "slogdet": _linalg.slogdet,
    "solve": _linalg.solve,
    "qr": _qr,
    "svd": _svd,
}


def _linear_algebra() -> dict[str, Function]:
    return _with_shapes(linear_algebra(_widened(_OF_MATRICES), namespace(), dtypes))


linalg = Extension(_linear_algebra, mx.np.linalg)
