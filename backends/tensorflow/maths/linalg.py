"""TensorFlow's decompositions, for the array API standard's extension ``linalg``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import tensorflow as tf

from xdevice.backends.tensorflow import maths
from xdevice.kit.standard.linalg import linear_algebra

_dtypes: Any = maths


def namespace() -> Mapping[str, Any]:
    """Every function of the extension, over the operations below."""
    return linear_algebra(maths.beside_and_widened(_RAW), maths.namespace(), _dtypes)


def module() -> ModuleType:
    found: ModuleType = tf.linalg
    return found


def _svd(x: Any, full: bool) -> tuple[Any, Any, Any]:
    s, u, v = tf.linalg.svd(x, full_matrices=full)
    return u, s, tf.linalg.adjoint(v)


_RAW: dict[str, Callable[..., Any]] = {
    **{
        name: getattr(tf.linalg, name)
        for name in ("cholesky", "det", "eig", "eigh", "eigvals", "inv", "slogdet", "solve")
    },
    "qr": tf.linalg.qr,
    "svd": _svd,
}
