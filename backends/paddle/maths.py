"""PaddlePaddle's operations, for the array API standard."""

import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from types import MethodType, ModuleType
from typing import Any, TypeAlias

import paddle

from xdevice.backends.kit.standard import standard
from xdevice.backends.kit.standard.fft import fourier_transforms
from xdevice.backends.kit.standard.linalg import linear_algebra
from xdevice.backends.kit.standard.widening import Widening
from xdevice.backends.paddle import creation, placement
from xdevice.backends.paddle.placement import device_of, move
from xdevice.contract import Extension, NativeDtype, Tensor
from xdevice.errors import NotSupportedError, UnknownPlacementError

Function: TypeAlias = Callable[..., Any]

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


def as_attribute(function: Function) -> Function:
    """A function that calls a method.

    The compiler `sot` of PaddlePaddle 3.3.1 takes the object that has a method as an attribute for
    the object that the method is bound to. Calls then fail, or end the process.
    """
    if not isinstance(function, MethodType):
        return function

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call


def module() -> ModuleType:
    native: ModuleType = paddle
    return native


def dtype_name(x: Any) -> str | None:
    return name_of(x.dtype) if isinstance(x, (paddle.Tensor, paddle.pir.Value)) else None


def cast(x: Tensor, dtype: NativeDtype) -> Tensor:
    return paddle.cast(x, dtype)


def number(value: complex, name: str, like: Tensor) -> Tensor:
    tensor = paddle.full([], value, getattr(paddle, name))
    try:
        device = device_of(like)
        if device_of(tensor) is device:
            return tensor
    except UnknownPlacementError:
        return tensor
    return move(tensor, device, False)


operand = number  # a plain number would cost as much
sliced = operator.getitem


# Elementwise


def _negative(x: Tensor, /) -> Tensor:
    """The negative. `paddle.neg` of PaddlePaddle 3.3.1 returns 0.0 for 0.0, and not -0.0."""
    if x.is_floating_point():
        return paddle.multiply(x, number(-1.0, str(dtype_name(x)), x))
    return paddle.neg(x)


def _copy_sign(x1: Tensor, x2: Tensor) -> Tensor:
    # PaddlePaddle's function warns if it has to broadcast
    return _copysign(*paddle.broadcast_tensors([x1, x2]))


def _equal(x1: Tensor, x2: Tensor) -> Tensor:
    """Whether numbers are equal.

    `paddle.equal` of PaddlePaddle 3.3.1 treats floats as equal that differ by less than 2.2e-16,
    such as 0 and 1e-16.
    """
    if x1.is_complex():
        real_parts_equal = _equal(paddle.real(x1), paddle.real(x2))
        imaginary_parts_equal = _equal(paddle.imag(x1), paddle.imag(x2))
        return paddle.logical_and(real_parts_equal, imaginary_parts_equal)
    if x1.is_floating_point():
        return paddle.logical_and(paddle.less_equal(x1, x2), paddle.greater_equal(x1, x2))
    return paddle.equal(x1, x2)


def _not_equal(x1: Tensor, x2: Tensor) -> Tensor:
    return paddle.logical_not(_equal(x1, x2))


def _remainder(x1: Tensor, x2: Tensor) -> Tensor:
    """The remainder, of integers as tensors of one shape.

    PaddlePaddle 3.3.1 aborts the process if it broadcasts integers to a divisor with a 0. For
    tensors of one shape it raises an error.
    """
    if list(x1.shape) != list(x2.shape) and not x1.is_floating_point():
        x1, x2 = paddle.broadcast_tensors([x1, x2])
    return paddle.remainder(x1, x2)


# Along axes


def _along_axes(op: Function) -> Function:
    return lambda x, axes, keepdims: op(x, list(axes), keepdim=keepdims)


def _sum(x: Tensor, axes: Sequence[int], keepdims: bool) -> Tensor:
    # PaddlePaddle 3.0 accepts only the name of a dtype
    return paddle.sum(x, list(axes), dtype_name(x), keepdims)


def _sort(x: Tensor, axis: int, descending: bool) -> Tensor:
    return paddle.sort(x, axis, descending, stable=True)


def _argsort(x: Tensor, axis: int, descending: bool) -> Tensor:
    return paddle.argsort(x, axis, descending, stable=True)


def _searchsorted(ordered: Tensor, values: Tensor, right: bool) -> Tensor:
    return paddle.searchsorted(ordered, values, right=right)


# Of shapes


def _reshape(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    if len(shape) > _MOST_AXES:
        raise NotSupportedError(
            f"paddle has no tensors of {len(shape)} axes; it has up to {_MOST_AXES}"
        )
    return paddle.reshape(x, shape)


def _repeat(x: Tensor, repeats: int | Tensor, axis: int) -> Tensor:
    if isinstance(repeats, int) and not repeats:  # PaddlePaddle 3.3.1 refuses 0
        return paddle.slice(x, [axis], [0], [0])
    if x.is_complex():  # which repeat_interleave does not accept
        indices = paddle.repeat_interleave(paddle.arange(x.shape[axis]), repeats)
        return paddle.index_select(x, indices, axis)
    return paddle.repeat_interleave(x, repeats, axis)


def _take_along_axis(x: Tensor, indices: Tensor, axis: int) -> Tensor:
    return paddle.take_along_axis(x, indices, axis, broadcast=False)


def _like(make: Function) -> Function:
    def make_like(x: Tensor, /, *, dtype: NativeDtype = None) -> Tensor:
        return make(x, dtype)

    return make_like


# Names and signatures that PaddlePaddle shares with the standard's raw operations.
_SAME = """
    acos acosh add argmax argmin asin asinh atan atan2 atanh bitwise_and bitwise_left_shift
    bitwise_or bitwise_right_shift bitwise_xor broadcast_to ceil concat conj cos cosh divide exp
    expm1 flip floor floor_divide greater_equal imag isfinite isinf isnan less_equal log log10 log1p
    log2 logical_and logical_not logical_or logical_xor matmul maximum minimum multiply nextafter
    pow real roll round signbit sin sinh sqrt squeeze stack subtract tan tanh tile trunc where
"""
_REDUCTIONS = ("all", "any", "max", "mean", "min", "prod")

_RAW: dict[str, Function] = {
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
    "not_equal": _not_equal,
    "copysign": _copy_sign,
    "greater": paddle.greater_than,
    "less": paddle.less_than,
    "remainder": _remainder,
    # along axes
    **{name: _along_axes(getattr(paddle, name)) for name in _REDUCTIONS},
    "sum": _sum,
    "cumulative_prod": paddle.cumprod,
    "cumulative_sum": paddle.cumsum,
    "sort": _sort,
    "argsort": _argsort,
    "searchsorted": _searchsorted,
    # of shapes
    "expand_dims": paddle.unsqueeze,
    "permute_dims": paddle.transpose,
    "reshape": _reshape,
    "repeat": _repeat,
    "unstack": paddle.unbind,
    "take": paddle.index_select,
    "take_along_axis": _take_along_axis,
}

_FOURIER = {name: getattr(paddle.fft, name) for name in ("fft", "ifft", "rfft", "irfft")}
fft = Extension(lambda: fourier_transforms(_widened(_FOURIER), namespace(), dtypes), paddle.fft)


# Linear algebra


def _solve(a: Tensor, b: Tensor) -> Tensor:
    """The solution of linear equations.

    PaddlePaddle 3.3.1 aborts the process if only one of the two tensors needs a gradient. So each
    is made to depend on the other; the gradient of that dependence is 0.
    """
    if a.stop_gradient and b.stop_gradient:
        return paddle.linalg.solve(a, b)
    return paddle.linalg.solve(_depending(a, b), _depending(b, a))


def _depending(x: Tensor, other: Tensor) -> Tensor:
    """The same numbers, which depend on the other tensor."""
    return paddle.where(paddle.zeros_like(x, "bool"), paddle.sum(other), x)


def _qr(x: Tensor, complete: bool) -> tuple[Tensor, Tensor]:
    q, r = paddle.linalg.qr(x, "complete" if complete else "reduced")
    return q, r


_linalg = paddle.linalg
_OF_MATRICES: dict[str, Function] = {
    "cholesky": _linalg.cholesky,
    "det": _linalg.det,
    "eig": _linalg.eig,
    "eigh": _linalg.eigh,
    "eigvals": _linalg.eigvals,
    "inv": _linalg.inv,
    "slogdet": _linalg.slogdet,
    "svd": _linalg.svd,
    "solve": _solve,
    "qr": _qr,
}


def _linear_algebra() -> dict[str, Function]:
    return linear_algebra(_widened(_OF_MATRICES), namespace(), dtypes)


linalg = Extension(_linear_algebra, paddle.linalg)
