"""TensorFlow's Fourier transforms, for the array API standard's extension ``fft``."""

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from xdevice.backends.tensorflow import maths
from xdevice.kit.standard.fft import fourier_transforms


def namespace() -> Mapping[str, Any]:
    """Every function of the extension, over the transforms below."""
    return fourier_transforms(maths.beside_and_widened(_RAW), maths.namespace(), maths.dtypes)


def module() -> Any:
    return tf.signal


_RAW: dict[str, Callable[..., Any]] = {
    **{name: getattr(tf.signal, name) for name in ("fft", "ifft", "rfft")},
    "irfft": lambda x, length: tf.signal.irfft(x, [length]),
}
