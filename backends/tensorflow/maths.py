"""TensorFlow's operations, for the array API standard: each is computed where its tensors are."""

import sys
from collections.abc import Callable, Mapping
from functools import partial, wraps
from typing import Any

import numpy as np
import tensorflow as tf

from xdevice.backends.tensorflow import creation
from xdevice.backends.tensorflow.placement import variable_of
from xdevice.backends.tensorflow.private_names import runtime
from xdevice.contract import Extension
from xdevice.kit.standard import standard
from xdevice.kit.standard.fft import fourier_transforms
from xdevice.kit.standard.linalg import linear_algebra
from xdevice.kit.standard.widening import Widening

_numpy: Any = tf.experimental.numpy
_ALIGNED = 64
_ORDERS = "ASCENDING", "DESCENDING"
_REFUSALS = (
    "list of allowed values",
    "Could not find device for node",
    "not support",
    "Unsupported",
    "not implement",
)
dtype = creation.dtype
dtypes: Any = sys.modules[__name__]  # this module has what the kit asks of `Dtypes`


def namespace() -> Mapping[str, Any]:
    return {**standard(_widened(_RAW), dtypes), "from_dlpack": _from_dlpack}


def _widened(raw: Mapping[str, Callable[..., Any]]) -> Mapping[str, Callable[..., Any]]:
    """The operations, each run where its first tensor is, and for every dtype."""
    beside = {name: _beside(operation) for name, operation in raw.items()}
    errors = (
        tf.errors.InvalidArgumentError,
        tf.errors.NotFoundError,
        tf.errors.UnimplementedError,
        TypeError,
    )
    return Widening("tensorflow", dtypes, errors, _REFUSALS).all(beside)


def module() -> Any:
    return tf


def name_of(dtype: Any) -> str:
    return str(tf.as_dtype(dtype).name)


def dtype_name(x: Any) -> str | None:
    if isinstance(x, (tf.Tensor, tf.Variable)) or variable_of(x) is not None:
        return name_of(x.dtype)
    return None


def _beside(operation: Callable[..., Any]) -> Callable[..., Any]:
    """The operation, run where its first tensor is: TensorFlow's own run in the scope."""

    @wraps(operation)
    def call(*args: Any, **kwargs: Any) -> Any:
        first = args[0][0] if type(args[0]) is list else args[0]
        device_name = getattr(first, "device", None)
        is_current = device_name == runtime().device_name
        if not device_name or is_current or not tf.executing_eagerly():
            return operation(*args, **kwargs)
        with tf.device(device_name):
            return operation(*args, **kwargs)

    return call


@_beside
def cast(x: Any, dtype: Any) -> Any:
    return tf.cast(x, tf.as_dtype(dtype))


def number(value: Any, name: str, like: Any) -> Any:
    return _number(like, value, name)


operand = number  # a plain number would cost as much


@_beside
def _number(like: Any, value: Any, name: str) -> Any:
    dtype = tf.as_dtype(name)
    return creation.constant(int(value) if dtype.is_integer else value, dtype)


def _from_dlpack(x: Any, /) -> Any:
    try:
        address = np.from_dlpack(x).ctypes.data
    except (AttributeError, BufferError, RuntimeError, TypeError):
        address = 0  # not on the host: the alignment matters there only
    # TensorFlow 2.21 takes such memory, and aborts in the first operation that needs it aligned
    if address % _ALIGNED:
        raise ValueError(
            f"the memory of the {type(x).__name__} does not begin at a multiple of {_ALIGNED} bytes"
        )
    return tf.experimental.dlpack.from_dlpack(x.__dlpack__())


def _extreme(op: Callable[..., Any], x: Any, axis: int, keepdims: bool) -> Any:
    indices = op(x, axis, tf.int64)
    return tf.expand_dims(indices, axis) if keepdims else indices


def _take(x: Any, indices: Any, axis: int) -> Any:
    """The elements at the indices, of which TensorFlow takes no negative ones."""
    length = tf.cast(tf.shape(x)[axis], indices.dtype)
    return tf.gather(x, tf.where(indices < 0, indices + length, indices), axis=axis)


def _searchsorted(ordered: Any, values: Any, right: bool) -> Any:
    side = "right" if right else "left"
    indices = tf.searchsorted(ordered, tf.reshape(values, [-1]), side, tf.int64)
    return tf.reshape(indices, tf.shape(values))


def _like(make: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, /, *, dtype=None: make(x, dtype=dtype)


def _triangle(cut: Callable[..., Any]) -> Callable[..., Any]:
    """``tril`` or ``triu`` for booleans, too, which TensorFlow 2.21 lacks."""

    def triangle(x: Any, /, *, k: int = 0) -> Any:
        if x.dtype == tf.bool:
            return tf.cast(cut(tf.cast(x, tf.uint8), k), tf.bool)
        return cut(x, k)

    return triangle


_SAME = (
    "acos acosh add asin asinh atan atan2 atanh ceil conj cos cosh divide equal exp expm1 floor greater greater_equal "
    "imag less less_equal log log1p logical_and logical_not logical_or logical_xor maximum minimum multiply nextafter "
    "not_equal pow real round sin sinh sqrt subtract tan tanh"
)

_SHAPES = "broadcast_to concat expand_dims matmul repeat reshape roll squeeze stack tile"

_RAW: dict[str, Callable[..., Any]] = {
    **{name: getattr(tf.math, name) for name in _SAME.split()},
    "abs": lambda x, /: tf.abs(x),
    "negative": lambda x, /: tf.negative(x),
    "sign": lambda x, /: tf.sign(x),
    "bitwise_invert": lambda x, /: (
        tf.logical_not(x) if x.dtype == tf.bool else tf.bitwise.invert(x)
    ),
    "nonzero": lambda x, /: tuple(tf.unstack(tf.where(tf.cast(x, tf.bool)), len(x.shape), axis=1)),
    **dict.fromkeys(("empty_like", "zeros_like"), _like(tf.zeros_like)),
    "ones_like": _like(tf.ones_like),
    **{name: _triangle(getattr(_numpy, name)) for name in ("tril", "triu")},
    # of two tensors of one dtype
    **{name: getattr(tf.bitwise, name) for name in ("bitwise_and", "bitwise_or", "bitwise_xor")},
    **{f"bitwise_{name}": getattr(tf.bitwise, name) for name in ("left_shift", "right_shift")},
    "floor_divide": tf.math.floordiv,
    "remainder": tf.math.floormod,
    "where": tf.where,
    # of floats
    **{f"is{name}": getattr(tf.math, f"is_{name}") for name in ("finite", "inf", "nan")},
    **{name: getattr(_numpy, name) for name in ("log10", "log2")},
    "signbit": lambda x: tf.bitcast(x, {2: tf.int16, 4: tf.int32, 8: tf.int64}[x.dtype.size]) < 0,
    "trunc": lambda x: tf.where(x < 0, tf.math.ceil(x), tf.floor(x)),
    # along axes
    **{
        name: getattr(tf, f"reduce_{name}")
        for name in ("all", "any", "max", "mean", "min", "prod", "sum")
    },
    **{name: partial(_extreme, getattr(tf, name)) for name in ("argmax", "argmin")},
    "cumulative_prod": tf.math.cumprod,
    "cumulative_sum": tf.cumsum,
    "sort": lambda x, axis, descending: tf.sort(x, axis, _ORDERS[bool(descending)]),
    "argsort": lambda x, axis, descending: tf.cast(
        tf.argsort(x, axis, _ORDERS[bool(descending)], True), tf.int64
    ),
    # of shapes
    **{name: getattr(tf, name) for name in _SHAPES.split()},
    "flip": tf.reverse,
    "permute_dims": tf.transpose,
    "unstack": lambda x, axis: tf.unstack(x, axis=axis),
    "take": _take,
    "take_along_axis": _numpy.take_along_axis,
    "searchsorted": _searchsorted,
}

_FOURIER: dict[str, Callable[..., Any]] = {
    **{name: getattr(tf.signal, name) for name in ("fft", "ifft", "rfft")},
    "irfft": lambda x, length: tf.signal.irfft(x, [length]),
}
fft = Extension(lambda: fourier_transforms(_widened(_FOURIER), namespace(), dtypes), tf.signal)


def _svd(x: Any, full: bool) -> tuple[Any, Any, Any]:
    s, u, v = tf.linalg.svd(x, full_matrices=full)
    return u, s, tf.linalg.adjoint(v)


_OF_MATRICES: dict[str, Callable[..., Any]] = {
    name: getattr(tf.linalg, name)
    for name in ("cholesky", "det", "eig", "eigh", "eigvals", "inv", "qr", "slogdet", "solve")
} | {"svd": _svd}
linalg = Extension(lambda: linear_algebra(_widened(_OF_MATRICES), namespace(), dtypes), tf.linalg)
