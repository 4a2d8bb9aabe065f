"""PaddlePaddle's operations, for the array API standard."""

import sys
from collections.abc import Callable, Mapping
from typing import Any

import paddle

from xdevice.backends.paddle import creation, placement
from xdevice.backends.paddle.placement import device_of, move
from xdevice.contract import Extension
from xdevice.errors import NotSupportedError, UnknownPlacementError
from xdevice.kit.standard import standard
from xdevice.kit.standard.fft import fourier_transforms
from xdevice.kit.standard.linalg import linear_algebra
from xdevice.kit.standard.widening import Widening

_copysign: Any = paddle.copysign
_MOST_AXES = 9
dtype, name_of = creation.dtype, placement.name_of
dtypes: Any = sys.modules[__name__]  # this module has what the kit asks of `Dtypes`
_REFUSALS = (
    "is not registered",
    "the data type",
    "The data type",
    "dtype of input",
    "Unsupported",
    "not support",
)
_widened = Widening("paddle", dtypes, (RuntimeError, TypeError, ValueError), _REFUSALS).all


def namespace() -> Mapping[str, Any]:
    return {**standard(_widened(_RAW), dtypes), "from_dlpack": paddle.from_dlpack}


def module() -> Any:
    return paddle


def dtype_name(x: Any) -> str | None:
    return name_of(x.dtype) if isinstance(x, (paddle.Tensor, paddle.pir.Value)) else None


def cast(x: Any, dtype: Any) -> Any:
    return paddle.cast(x, dtype)


def number(value: Any, name: str, like: Any) -> Any:
    made = paddle.full([], value, getattr(paddle, name))
    try:
        there, here = device_of(like), device_of(made)
    except UnknownPlacementError:
        return made
    return made if there is here else move(made, there, False)


operand = number  # a plain number would cost as much


def _axes(op: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, axes, keepdims: op(x, list(axes), keepdim=keepdims)


def _sum(x: Any, axes: Any, keepdims: bool) -> Any:
    name: Any = dtype_name(x)  # PaddlePaddle 3.0 takes the dtype's name only
    return paddle.sum(x, list(axes), name, keepdims)


def _reshape(x: Any, shape: tuple[int, ...]) -> Any:
    if len(shape) > _MOST_AXES:
        raise NotSupportedError(
            f"paddle has no tensors of {len(shape)} axes; it has up to {_MOST_AXES}"
        )
    return paddle.reshape(x, shape)


def _negative(x: Any, /) -> Any:
    """PaddlePaddle 3.3.1's own makes 0.0 of 0.0, and not -0.0."""
    return (
        paddle.multiply(x, number(-1.0, str(dtype_name(x)), x))
        if x.is_floating_point()
        else paddle.neg(x)
    )


def _equal(x1: Any, x2: Any) -> Any:
    """PaddlePaddle 3.3.1's own takes floats that differ by less than 2.2e-16, such as 0 and 1e-16, for equal."""
    if x1.is_complex():
        return paddle.logical_and(
            _equal(paddle.real(x1), paddle.real(x2)), _equal(paddle.imag(x1), paddle.imag(x2))
        )
    if x1.is_floating_point():
        return paddle.logical_and(paddle.less_equal(x1, x2), paddle.greater_equal(x1, x2))
    return paddle.equal(x1, x2)


def _remainder(x1: Any, x2: Any) -> Any:
    """PaddlePaddle 3.3.1's own ends the process where it broadcasts integers to a divisor with a 0.

    Of two tensors of one shape it raises an error.
    """
    if list(x1.shape) != list(x2.shape) and not x1.is_floating_point():
        x1, x2 = paddle.broadcast_tensors([x1, x2])
    return paddle.remainder(x1, x2)


def _repeat(x: Any, repeats: Any, axis: int) -> Any:
    if isinstance(repeats, int) and not repeats:  # PaddlePaddle 3.3.1 refuses it
        return paddle.slice(x, [axis], [0], [0])
    if x.is_complex():  # it has none of them
        return paddle.index_select(
            x, paddle.repeat_interleave(paddle.arange(x.shape[axis]), repeats), axis
        )
    return paddle.repeat_interleave(x, repeats, axis)


def _like(make: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, /, *, dtype=None: make(x, dtype)


_SAME = (
    "acos acosh add argmax argmin asin asinh atan atan2 atanh bitwise_and bitwise_left_shift bitwise_or "
    "bitwise_right_shift bitwise_xor broadcast_to ceil concat conj cos cosh divide exp expm1 flip floor floor_divide "
    "greater_equal imag isfinite isinf isnan less_equal log log10 log1p log2 logical_and logical_not logical_or "
    "logical_xor matmul maximum minimum multiply nextafter pow real roll round signbit sin sinh sqrt squeeze "
    "stack subtract tan tanh tile trunc where"
)

_RAW: dict[str, Callable[..., Any]] = {
    **{name: getattr(paddle, name) for name in _SAME.split()},
    "abs": lambda x, /: paddle.abs(x),
    "negative": _negative,
    "sign": lambda x, /: paddle.sign(x),
    "bitwise_invert": lambda x, /: paddle.bitwise_not(x),
    "nonzero": lambda x, /: tuple(paddle.unbind(paddle.nonzero(x), 1)),
    **{name: _like(getattr(paddle, name)) for name in ("empty_like", "ones_like", "zeros_like")},
    "tril": lambda x, /, *, k=0: paddle.tril(x, k),
    "triu": lambda x, /, *, k=0: paddle.triu(x, k),
    # of two tensors of one dtype
    "equal": _equal,
    "not_equal": lambda x1, x2: paddle.logical_not(_equal(x1, x2)),
    "copysign": lambda x1, x2: _copysign(
        *paddle.broadcast_tensors([x1, x2])
    ),  # it warns where it broadcasts
    "greater": paddle.greater_than,
    "less": paddle.less_than,
    "remainder": _remainder,
    # along axes
    **{name: _axes(getattr(paddle, name)) for name in ("all", "any", "max", "mean", "min", "prod")},
    "sum": _sum,
    "cumulative_prod": paddle.cumprod,
    "cumulative_sum": paddle.cumsum,
    "sort": lambda x, axis, descending: paddle.sort(x, axis, descending, stable=True),
    "argsort": lambda x, axis, descending: paddle.argsort(x, axis, descending, stable=True),
    # of shapes
    "expand_dims": paddle.unsqueeze,
    "permute_dims": paddle.transpose,
    "reshape": _reshape,
    "repeat": _repeat,
    "unstack": paddle.unbind,
    "take": paddle.index_select,
    "take_along_axis": lambda x, indices, axis: paddle.take_along_axis(
        x, indices, axis, broadcast=False
    ),
    "searchsorted": lambda ordered, values, right: paddle.searchsorted(
        ordered, values, right=right
    ),
}

_FOURIER = {name: getattr(paddle.fft, name) for name in ("fft", "ifft", "rfft", "irfft")}
fft = Extension(lambda: fourier_transforms(_widened(_FOURIER), namespace(), dtypes), paddle.fft)


def _solve(a: Any, b: Any) -> Any:
    """PaddlePaddle 3.3.1's own gradient ends the process where that of one of the two is not asked for.

    So each is made to depend on both; the gradient by that way is 0.
    """
    if a.stop_gradient and b.stop_gradient:
        return paddle.linalg.solve(a, b)
    return paddle.linalg.solve(_depending(a, b), _depending(b, a))


def _depending(x: Any, other: Any) -> Any:
    return paddle.where(paddle.zeros_like(x, "bool"), paddle.sum(other), x)


_OF_MATRICES: dict[str, Callable[..., Any]] = {
    name: getattr(paddle.linalg, name)
    for name in ("cholesky", "det", "eig", "eigh", "eigvals", "inv", "slogdet", "svd")
} | {"solve": _solve, "qr": lambda x, full: paddle.linalg.qr(x, "complete" if full else "reduced")}
linalg = Extension(
    lambda: linear_algebra(_widened(_OF_MATRICES), namespace(), dtypes), paddle.linalg
)
