"""TensorFlow's decompositions, for the array API standard's extension ``linalg``."""

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from xdevice.backends.tensorflow import maths
from xdevice.kit.standard.linalg import linear_algebra


def namespace() -> Mapping[str, Any]:
    """Every function of the extension, over the operations below."""
    return linear_algebra(maths.beside_and_widened(_RAW), maths.namespace(), maths.dtypes)


def module() -> Any:
    return tf.linalg


def _svd(x: Any, full: bool) -> tuple[Any, Any, Any]:
    s, u, v = tf.linalg.svd(x, full_matrices=full)
    return u, s, tf.linalg.adjoint(v)


_SAME = ("cholesky", "det", "eig", "eigh", "eigvals", "inv", "slogdet", "solve")
_RAW: dict[str, Callable[..., Any]] = {
    **{name: getattr(tf.linalg, name) for name in _SAME},
    "qr": tf.linalg.qr,
    "svd": _svd,
}
