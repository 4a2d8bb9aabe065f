"""Numbers that can be compared: no TF32."""

from collections.abc import Iterator
from contextlib import contextmanager

import tensorflow as tf


@contextmanager
def comparable(x64: bool) -> Iterator[None]:
    experimental = tf.config.experimental
    former = experimental.tensor_float_32_execution_enabled()
    experimental.enable_tensor_float_32_execution(False)
    try:
        yield
    finally:
        experimental.enable_tensor_float_32_execution(former)
