"""TensorFlow's operations, for the array API standard: each is computed beside its tensors."""

import operator
import sys
from collections.abc import Callable, Mapping
from functools import partial, wraps
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from xdevice.backends.kit.standard import standard
from xdevice.backends.kit.standard.fft import fourier_transforms
from xdevice.backends.kit.standard.linalg import linear_algebra
from xdevice.backends.kit.standard.widening import Widening
from xdevice.backends.tensorflow import creation
from xdevice.backends.tensorflow.placement import arrived, device_of, variable_of
from xdevice.backends.tensorflow.private_names import runtime
from xdevice.contract import Extension, NativeDtype, Tensor

Function: TypeAlias = Callable[..., Any]

_numpy: Any = tf.experimental.numpy
_ALIGNMENT = 64  # bytes
_ORDERS = {False: "ASCENDING", True: "DESCENDING"}
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


def _widened(raw: Mapping[str, Function]) -> Mapping[str, Function]:
    """The operations for every dtype, each run beside its first tensor."""
    beside = {name: _beside(operation) for name, operation in raw.items()}
    errors = (
        tf.errors.InvalidArgumentError,
        tf.errors.NotFoundError,
        tf.errors.UnimplementedError,
        TypeError,
    )
    return Widening("tensorflow", dtypes, errors, _REFUSALS).all(beside)


def module() -> ModuleType:
    native: ModuleType = tf
    return native


def name_of(dtype: NativeDtype) -> str:
    return str(tf.as_dtype(dtype).name)


def dtype_name(x: Any) -> str | None:
    if isinstance(x, (tf.Tensor, tf.Variable)) or variable_of(x) is not None:
        return name_of(x.dtype)
    return None


def _beside(operation: Function) -> Function:
    """The operation, run beside its first tensor; TensorFlow runs operations in the scope.

    Where GPUs have no kernel, TensorFlow computes on the CPU and leaves the result there.
    """

    @wraps(operation)
    def call(*args: Any, **kwargs: Any) -> Any:
        first = args[0][0] if type(args[0]) is list else args[0]
        device_name = getattr(first, "device", None)
        if not device_name or not tf.executing_eagerly():
            return operation(*args, **kwargs)
        if device_name == runtime().device_name:
            result = operation(*args, **kwargs)
        else:
            with tf.device(device_name):
                result = operation(*args, **kwargs)
        if "CPU:" in device_name:
            return result
        device = device_of(first)
        if isinstance(result, tf.Tensor):  # nearly always; to walk a structure takes longer
            return arrived(result, device)
        return tf.nest.map_structure(partial(arrived, device=device), result)

    return call


@_beside
def cast(x: Tensor, dtype: NativeDtype) -> Tensor:
    return tf.cast(x, tf.as_dtype(dtype))


def number(value: complex, name: str, like: Tensor) -> Tensor:
    return _number(like, value, name)


operand = number  # a plain number would cost as much


@_beside
def _number(like: Tensor, value: Any, name: str) -> Tensor:
    dtype = tf.as_dtype(name)
    if dtype.is_integer:
        value = int(value)
    return creation.constant(value, dtype)


sliced = _beside(operator.getitem)


def _from_dlpack(x: Any, /) -> Tensor:
    try:
        address = np.from_dlpack(x).ctypes.data
    except (AttributeError, BufferError, RuntimeError, TypeError):
        address = 0  # not in the host's memory, where alone the alignment matters
    # TensorFlow 2.21 accepts such memory, and aborts in the first operation that needs it aligned
    if address % _ALIGNMENT:
        raise ValueError(
            f"the memory of the {type(x).__name__} does not begin at a multiple of "
            f"{_ALIGNMENT} bytes"
        )
    return tf.experimental.dlpack.from_dlpack(x.__dlpack__())


def _mean(x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    """The mean, which is nan for no numbers; TensorFlow 2.21's of complex ones is 0."""
    if x.dtype.is_complex:
        parts = (tf.reduce_mean(part(x), axes, keepdims) for part in (tf.math.real, tf.math.imag))
        return tf.complex(*parts)
    return tf.reduce_mean(x, axes, keepdims)


def _extreme(op: Function, x: Tensor, axis: int, keepdims: bool) -> Tensor:
    """``argmax`` or ``argmin``, which may keep the axis."""
    indices = op(x, axis, tf.int64)
    return tf.expand_dims(indices, axis) if keepdims else indices


def _sort(x: Tensor, axis: int, descending: bool) -> Tensor:
    return tf.sort(x, axis, _ORDERS[descending])


def _argsort(x: Tensor, axis: int, descending: bool) -> Tensor:
    indices = tf.argsort(x, axis, _ORDERS[descending], stable=True)
    return tf.cast(indices, tf.int64)


def _bitwise_invert(x: Tensor, /) -> Tensor:
    return tf.logical_not(x) if x.dtype == tf.bool else tf.bitwise.invert(x)


def _nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    indices = tf.where(tf.cast(x, tf.bool))
    return tuple(tf.unstack(indices, len(x.shape), axis=1))


def _signbit(x: Tensor) -> Tensor:
    integer = {2: tf.int16, 4: tf.int32, 8: tf.int64}[x.dtype.size]
    return tf.bitcast(x, integer) < 0


def _truncated(x: Tensor) -> Tensor:
    return tf.where(x < 0, tf.math.ceil(x), tf.floor(x))


def _take(x: Tensor, indices: Tensor, axis: int) -> Tensor:
    """The elements at the indices; `tf.gather` does not accept negative ones."""
    length = tf.cast(tf.shape(x)[axis], indices.dtype)
    return tf.gather(x, tf.where(indices < 0, indices + length, indices), axis=axis)


def _searchsorted(ordered: Tensor, values: Tensor, right: bool) -> Tensor:
    side = "right" if right else "left"
    indices = tf.searchsorted(ordered, tf.reshape(values, [-1]), side, tf.int64)
    return tf.reshape(indices, tf.shape(values))


def _like(make: Function) -> Function:
    def make_like(x: Tensor, /, *, dtype: NativeDtype = None) -> Tensor:
        return make(x, dtype=dtype)

    return make_like


def _triangle(cut: Function) -> Function:
    """``tril`` or ``triu``, also for booleans, which TensorFlow 2.21 lacks."""

    def triangle(x: Tensor, /, *, k: int = 0) -> Tensor:
        if x.dtype == tf.bool:
            return tf.cast(cut(tf.cast(x, tf.uint8), k), tf.bool)
        return cut(x, k)

    return triangle


# Names and signatures that TensorFlow shares with the standard's raw operations.
_SAME = """
    acos acosh add asin asinh atan atan2 atanh ceil conj cos cosh divide equal exp expm1 floor
    greater greater_equal imag less less_equal log log1p logical_and logical_not logical_or
    logical_xor maximum minimum multiply nextafter not_equal pow real round sin sinh sqrt subtract
    tan tanh
"""
_SHAPES = "broadcast_to concat expand_dims matmul repeat reshape roll squeeze stack tile"
_REDUCTIONS = ("all", "any", "max", "min", "prod", "sum")

_RAW: dict[str, Function] = {
    **{name: getattr(tf.math, name) for name in _SAME.split()},
    "abs": lambda x, /: tf.abs(x),
    "negative": lambda x, /: tf.negative(x),
    "sign": lambda x, /: tf.sign(x),
    "bitwise_invert": _bitwise_invert,
    "nonzero": _nonzero,
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
    "signbit": _signbit,
    "trunc": _truncated,
    # along axes
    **{name: getattr(tf, f"reduce_{name}") for name in _REDUCTIONS},
    "mean": _mean,
    **{name: partial(_extreme, getattr(tf, name)) for name in ("argmax", "argmin")},
    "cumulative_prod": tf.math.cumprod,
    "cumulative_sum": tf.cumsum,
    "sort": _sort,
    "argsort": _argsort,
    # of shapes
    **{name: getattr(tf, name) for name in _SHAPES.split()},
    "flip": tf.reverse,
    "permute_dims": tf.transpose,
    "unstack": lambda x, axis: tf.unstack(x, axis=axis),
    "take": _take,
    "take_along_axis": _numpy.take_along_axis,
    "searchsorted": _searchsorted,
}

_FOURIER: dict[str, Function] = {
    **{name: getattr(tf.signal, name) for name in ("fft", "ifft", "rfft")},
    "irfft": lambda x, length: tf.signal.irfft(x, [length]),
}
fft = Extension(lambda: fourier_transforms(_widened(_FOURIER), namespace(), dtypes), tf.signal)


def _svd(x: Tensor, full_matrices: bool) -> tuple[Tensor, Tensor, Tensor]:
    s, u, v = tf.linalg.svd(x, full_matrices=full_matrices)
    return u, s, tf.linalg.adjoint(v)


_OF_MATRICES: dict[str, Function] = {
    "cholesky": tf.linalg.cholesky,
    "det": tf.linalg.det,
    "eig": tf.linalg.eig,
    "eigh": tf.linalg.eigh,
    "eigvals": tf.linalg.eigvals,
    "inv": tf.linalg.inv,
    "qr": tf.linalg.qr,
    "slogdet": tf.linalg.slogdet,
    "solve": tf.linalg.solve,
    "svd": _svd,
}


def _linear_algebra() -> dict[str, Function]:
    return linear_algebra(_widened(_OF_MATRICES), namespace(), dtypes)


linalg = Extension(_linear_algebra, tf.linalg)
