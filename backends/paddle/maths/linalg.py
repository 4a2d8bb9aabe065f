"""PaddlePaddle's decompositions, for the array API standard's extension ``linalg``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import paddle

from xdevice.backends.paddle import maths
from xdevice.kit.standard.linalg import linear_algebra

_dtypes: Any = maths


def namespace() -> Mapping[str, Any]:
    """Every function of the extension, over the operations below."""
    return linear_algebra(maths.widened(_RAW), maths.namespace(), _dtypes)


def module() -> ModuleType:
    found: ModuleType = paddle.linalg
    return found


_RAW: dict[str, Callable[..., Any]] = {
    **{
        name: getattr(paddle.linalg, name)
        for name in ("cholesky", "det", "eig", "eigh", "eigvals", "inv", "slogdet", "solve")
    },
    "qr": lambda x, full: paddle.linalg.qr(x, "complete" if full else "reduced"),
    "svd": paddle.linalg.svd,
}
