"""PaddlePaddle's operations, for the array API standard."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import paddle

from xdevice.backends.paddle.placement import device_of, move
from xdevice.errors import UnknownPlacementError
from xdevice.kit.standard import standard

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType


def namespace() -> Mapping[str, Any]:
    """Every function of the standard, over the operations below."""
    return standard(_RAW, sys.modules[__name__])


def module() -> ModuleType:
    found: ModuleType = paddle
    return found


def dtype_name(x: Any) -> str | None:
    """NumPy's name for the dtype; ``None`` for what is no tensor."""
    return str(x.dtype)[7:] if isinstance(x, (paddle.Tensor, paddle.pir.Value)) else None  # paddle.float32


def cast(x: Any, dtype: Any) -> Any:
    """The tensor in another dtype, whatever it is written as."""
    return paddle.cast(x, dtype)


def number(value: Any, name: str, like: Any) -> Any:
    """A tensor of one number, beside another tensor."""
    made = paddle.full([], value, getattr(paddle, name))
    try:
        there, here = device_of(like), device_of(made)
    except UnknownPlacementError:
        return made
    return made if there is here else move(made, there, False)


operand = number  # no operation takes less of a plain one


def _axes(op: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, axes, keepdims: op(x, list(axes), keepdim=keepdims)


def _extreme(op: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, axis, keepdims: op(x, axis, keepdims)


def _nonzero(x: Any, /) -> tuple[Any, ...]:
    return tuple(paddle.unbind(paddle.nonzero(x), 1))


def _as_integers(op: Callable[..., Any]) -> Callable[..., Any]:
    """An operation that PaddlePaddle 3.3.1 has for every dtype but booleans."""

    def call(x: Any, *args: Any) -> Any:
        return op(x, *args) if x.dtype != paddle.bool else paddle.cast(op(paddle.cast(x, "int32"), *args), "bool")

    return call


def _repeat(x: Any, repeats: Any, axis: int) -> Any:
    if isinstance(repeats, int) and not repeats:  # which PaddlePaddle 3.3.1 refuses
        return paddle.slice(x, [axis], [0], [0])
    return paddle.repeat_interleave(x, repeats, axis)


def _take(x: Any, indices: Any, axis: int) -> Any:
    return paddle.index_select(x, indices, axis)


def _like(make: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, /, *, dtype=None: make(x, dtype)


def _triangle(cut: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, /, *, k=0: cut(x, k)


_RAW: dict[str, Callable[..., Any]] = {
    "abs": lambda x, /: paddle.abs(x),
    "negative": lambda x, /: paddle.neg(x),
    "sign": lambda x, /: paddle.sign(x),
    "nonzero": _nonzero,
    "empty_like": _like(paddle.empty_like),
    "ones_like": _like(paddle.ones_like),
    "zeros_like": _like(paddle.zeros_like),
    "tril": _triangle(paddle.tril),
    "triu": _triangle(paddle.triu),
    # of two tensors of one dtype
    "add": paddle.add,
    "divide": paddle.divide,
    "equal": paddle.equal,
    "floor_divide": paddle.floor_divide,
    "greater": paddle.greater_than,
    "greater_equal": paddle.greater_equal,
    "less": paddle.less_than,
    "less_equal": paddle.less_equal,
    "maximum": paddle.maximum,
    "minimum": paddle.minimum,
    "multiply": paddle.multiply,
    "not_equal": paddle.not_equal,
    "pow": paddle.pow,
    "remainder": paddle.remainder,
    "subtract": paddle.subtract,
    "logical_and": paddle.logical_and,
    "logical_not": paddle.logical_not,
    "logical_or": paddle.logical_or,
    "logical_xor": paddle.logical_xor,
    "where": paddle.where,
    # of floats
    "ceil": paddle.ceil,
    "cos": paddle.cos,
    "cosh": paddle.cosh,
    "exp": paddle.exp,
    "expm1": paddle.expm1,
    "floor": paddle.floor,
    "isfinite": paddle.isfinite,
    "isinf": paddle.isinf,
    "isnan": paddle.isnan,
    "log": paddle.log,
    "log10": paddle.log10,
    "log1p": paddle.log1p,
    "log2": paddle.log2,
    "round": paddle.round,
    "sin": paddle.sin,
    "sinh": paddle.sinh,
    "sqrt": paddle.sqrt,
    "tan": paddle.tan,
    "tanh": paddle.tanh,
    # along axes
    "all": _axes(paddle.all),
    "any": _axes(paddle.any),
    "max": _axes(paddle.max),
    "mean": _axes(paddle.mean),
    "min": _axes(paddle.min),
    "prod": _axes(paddle.prod),
    "sum": lambda x, axes, keepdims: paddle.sum(x, list(axes), x.dtype, keepdims),
    "argmax": _extreme(paddle.argmax),
    "argmin": _extreme(paddle.argmin),
    "cumulative_sum": paddle.cumsum,
    "sort": lambda x, axis, descending: paddle.sort(x, axis, descending, stable=True),
    "argsort": lambda x, axis, descending: paddle.argsort(x, axis, descending, stable=True),
    # of shapes
    "broadcast_to": paddle.broadcast_to,
    "concat": paddle.concat,
    "expand_dims": paddle.unsqueeze,
    "flip": paddle.flip,
    "matmul": paddle.matmul,
    "permute_dims": paddle.transpose,
    "repeat": _as_integers(_repeat),
    "reshape": paddle.reshape,
    "roll": paddle.roll,
    "squeeze": paddle.squeeze,
    "stack": paddle.stack,
    "tile": paddle.tile,
    "unstack": paddle.unbind,
    "take": _take,
    "take_along_axis": _as_integers(lambda x, indices, axis: paddle.take_along_axis(x, indices, axis, broadcast=False)),
    "searchsorted": lambda ordered, values, right: paddle.searchsorted(ordered, values, right=right),
    "unique_values": paddle.unique,
}
