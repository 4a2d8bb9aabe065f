"""MXNet's decompositions, for the array API standard's extension ``linalg``."""

from collections.abc import Callable, Mapping
from typing import Any

import mxnet as mx

from xdevice.backends.mxnet import maths
from xdevice.errors import NotSupportedError
from xdevice.kit.standard.linalg import linear_algebra

_np: Any = mx.np
_linalg: Any = mx.np.linalg
_nd_linalg: Any = mx.nd.linalg


def namespace() -> Mapping[str, Any]:
    """Every function of the extension, over the operations below, with the shapes that NumPy has."""
    made = linear_algebra(maths.widened(_RAW), maths.namespace(), maths.dtypes)
    return {name: maths.with_shapes(function) for name, function in made.items()}


def module() -> Any:
    return mx.np.linalg


def _turned(x: Any) -> Any:
    return _np.swapaxes(x, -1, -2)


def _svd(x: Any, full: bool) -> tuple[Any, Any, Any]:
    if full:
        raise NotSupportedError("mxnet has no full matrices in svd; pass full_matrices=False")
    if x.shape[-2] <= x.shape[-1]:  # MXNet takes no others
        u, s, vh = _linalg.svd(x)
        return u, s, vh
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


_RAW: dict[str, Callable[..., Any]] = {
    **{name: getattr(_linalg, name) for name in ("cholesky", "det", "eigh", "inv", "slogdet", "solve")},
    "qr": _qr,
    "svd": _svd,
}
