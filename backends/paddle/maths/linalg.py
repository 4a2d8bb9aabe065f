"""PaddlePaddle's decompositions, for the array API standard's extension ``linalg``."""

from collections.abc import Callable, Mapping
from typing import Any

import paddle

from xdevice.backends.paddle import maths
from xdevice.kit.standard.linalg import linear_algebra


def namespace() -> Mapping[str, Any]:
    """Every function of the extension, over the operations below."""
    return linear_algebra(maths.widened(_RAW), maths.namespace(), maths.dtypes)


def module() -> Any:
    return paddle.linalg


_SAME = ("cholesky", "det", "eig", "eigh", "eigvals", "inv", "slogdet", "solve")
_RAW: dict[str, Callable[..., Any]] = {
    **{name: getattr(paddle.linalg, name) for name in _SAME},
    "qr": lambda x, full: paddle.linalg.qr(x, "complete" if full else "reduced"),
    "svd": paddle.linalg.svd,
}
