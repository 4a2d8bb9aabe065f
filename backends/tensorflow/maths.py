"""TensorFlow's operations, for the array API standard: each is computed where its tensors are."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.python.eager import context  # which scope this thread is in

from xdevice.backends.tensorflow.placement import variable_of
from xdevice.kit.standard import standard

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType

_numpy: Any = tf.experimental.numpy
_running: Any = context.context


def namespace() -> Mapping[str, Any]:
    """Every function of the standard, over the operations below."""
    return standard({name: _beside(operation) for name, operation in _RAW.items()}, sys.modules[__name__])


def module() -> ModuleType:
    found: ModuleType = tf
    return found


def dtype_name(x: Any) -> str | None:
    """NumPy's name for the dtype; ``None`` for what is no tensor."""
    if isinstance(x, (tf.Tensor, tf.Variable)) or variable_of(x) is not None:
        name: str = tf.as_dtype(x.dtype).name
        return name
    return None


def _beside(operation: Callable[..., Any]) -> Callable[..., Any]:
    """The operation, run where its first tensor is: TensorFlow's own run in the scope."""

    def call(*args: Any, **kwargs: Any) -> Any:
        first = args[0]
        where = getattr(first[0] if type(first) is list else first, "device", None)
        if not where or where == _running().device_name or not tf.executing_eagerly():
            return operation(*args, **kwargs)
        with tf.device(where):
            return operation(*args, **kwargs)

    return call


@_beside
def cast(x: Any, dtype: Any) -> Any:
    """The tensor in another dtype, whatever it is written as."""
    return tf.cast(x, tf.as_dtype(dtype))


def number(value: Any, name: str, like: Any) -> Any:
    """A tensor of one number, beside another tensor."""
    return _number(like, value, name)


operand = number  # no operation takes less of a plain one


@_beside
def _number(like: Any, value: Any, name: str) -> Any:
    dtype = tf.as_dtype(name)
    return tf.constant(value if not dtype.is_integer else int(value), dtype)


def _extreme(op: Callable[..., Any]) -> Callable[..., Any]:
    def call(x: Any, axis: int, keepdims: bool) -> Any:
        found = op(x, axis, tf.int64)
        return tf.expand_dims(found, axis) if keepdims else found

    return call


def _sort(x: Any, axis: int, descending: bool) -> Any:
    return tf.sort(x, axis, "DESCENDING" if descending else "ASCENDING")


def _argsort(x: Any, axis: int, descending: bool) -> Any:
    found = tf.argsort(x, axis, "DESCENDING" if descending else "ASCENDING", stable=True)
    return tf.cast(found, tf.int64)


def _from_front(indices: Any, length: Any) -> Any:
    """Indices counted from 0: TensorFlow knows no others."""
    return tf.where(indices < 0, indices + tf.cast(length, indices.dtype), indices)


def _take(x: Any, indices: Any, axis: int) -> Any:
    return tf.gather(x, _from_front(indices, tf.shape(x)[axis]), axis=axis)


def _take_along_axis(x: Any, indices: Any, axis: int) -> Any:
    return _numpy.take_along_axis(x, indices, axis)


def _nonzero(x: Any, /) -> tuple[Any, ...]:
    return tuple(tf.unstack(tf.where(tf.cast(x, tf.bool)), len(x.shape), axis=1))


def _searchsorted(ordered: Any, values: Any, right: bool) -> Any:
    flat = tf.reshape(values, [-1])
    found = tf.searchsorted(ordered, flat, "right" if right else "left", tf.int64)
    return tf.reshape(found, tf.shape(values))


def _like(make: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, /, *, dtype=None: make(x, dtype=dtype)


def _triangle(cut: Callable[..., Any]) -> Callable[..., Any]:
    def call(x: Any, /, *, k: int = 0) -> Any:
        if x.dtype != tf.bool:
            return cut(x, k)
        return tf.cast(cut(tf.cast(x, tf.uint8), k), tf.bool)  # 2.21 has none of booleans

    return call


_RAW: dict[str, Callable[..., Any]] = {
    "abs": lambda x, /: tf.abs(x),
    "negative": lambda x, /: tf.negative(x),
    "sign": lambda x, /: tf.sign(x),
    "nonzero": _nonzero,
    "empty_like": _like(tf.zeros_like),
    "ones_like": _like(tf.ones_like),
    "zeros_like": _like(tf.zeros_like),
    "tril": _triangle(_numpy.tril),
    "triu": _triangle(_numpy.triu),
    # of two tensors of one dtype
    "add": tf.add,
    "divide": tf.divide,
    "equal": tf.equal,
    "floor_divide": tf.math.floordiv,
    "greater": tf.greater,
    "greater_equal": tf.greater_equal,
    "less": tf.less,
    "less_equal": tf.less_equal,
    "maximum": tf.maximum,
    "minimum": tf.minimum,
    "multiply": tf.multiply,
    "not_equal": tf.not_equal,
    "pow": tf.pow,
    "remainder": tf.math.floormod,
    "subtract": tf.subtract,
    "logical_and": tf.logical_and,
    "logical_not": tf.logical_not,
    "logical_or": tf.logical_or,
    "logical_xor": tf.math.logical_xor,
    "where": tf.where,
    # of floats
    "ceil": tf.math.ceil,
    "cos": tf.cos,
    "cosh": tf.cosh,
    "exp": tf.exp,
    "expm1": tf.math.expm1,
    "floor": tf.floor,
    "isfinite": tf.math.is_finite,
    "isinf": tf.math.is_inf,
    "isnan": tf.math.is_nan,
    "log": tf.math.log,
    "log10": _numpy.log10,
    "log1p": tf.math.log1p,
    "log2": _numpy.log2,
    "round": tf.round,
    "sin": tf.sin,
    "sinh": tf.sinh,
    "sqrt": tf.sqrt,
    "tan": tf.tan,
    "tanh": tf.tanh,
    # along axes
    "all": tf.reduce_all,
    "any": tf.reduce_any,
    "max": tf.reduce_max,
    "mean": tf.reduce_mean,
    "min": tf.reduce_min,
    "prod": tf.reduce_prod,
    "sum": tf.reduce_sum,
    "argmax": _extreme(tf.argmax),
    "argmin": _extreme(tf.argmin),
    "cumulative_sum": tf.cumsum,
    "sort": _sort,
    "argsort": _argsort,
    # of shapes
    "broadcast_to": tf.broadcast_to,
    "concat": tf.concat,
    "expand_dims": tf.expand_dims,
    "flip": tf.reverse,
    "matmul": tf.matmul,
    "permute_dims": tf.transpose,
    "repeat": tf.repeat,
    "reshape": tf.reshape,
    "roll": tf.roll,
    "squeeze": tf.squeeze,
    "stack": tf.stack,
    "tile": tf.tile,
    "unstack": lambda x, axis: tf.unstack(x, axis=axis),
    "take": _take,
    "take_along_axis": _take_along_axis,
    "searchsorted": _searchsorted,
    "unique_values": lambda x: tf.sort(tf.unique(x)[0]),
}
