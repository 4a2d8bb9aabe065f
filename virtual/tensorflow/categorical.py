"""`tf.random.categorical` and `tf.random.stateless_categorical`, as GPUs sample categories.

The CPU takes one uniform number for a sample, and finds its place among the sums of probabilities.
GPUs take one for each class, and the class with the largest logit after Gumbel's noise. TensorFlow
draws these uniform numbers in the same way on both.

A second call with the same ``seed=``, or of a graph, has other numbers than on a GPU, which uses up
fewer of the generator's numbers.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from xdevice.backends.tensorflow.private_names import runtime
from xdevice.contract import Tensor
from xdevice.virtual.tensorflow.private_names import Function, Replacements

_LEAST = 2e-30  # added to a uniform number, of which a logarithm is taken
_replacements = Replacements()


def start() -> None:
    _replacements.apply()


@_replacements("tensorflow.python.ops.gen_random_ops:multinomial")
def _multinomial(  # noqa: PLR0913, PLR0917  (TensorFlow's signature)
    native: Function,
    logits: Any,
    num_samples: Any,
    seed: int = 0,
    seed2: int = 0,
    output_dtype: Any = tf.int64,
    name: str | None = None,
) -> Tensor:
    def draw(shape: Tensor) -> Tensor:
        return tf.raw_ops.RandomUniform(shape=shape, dtype=tf.float32, seed=seed, seed2=seed2)

    if not _is_drawn_as_on_gpus(logits, num_samples):
        return native(logits, num_samples, seed, seed2, output_dtype, name)
    return _sample(logits, num_samples, output_dtype, draw)


@_replacements("tensorflow.python.ops.gen_stateless_random_ops:stateless_multinomial")
def _stateless_multinomial(  # noqa: PLR0913, PLR0917  (TensorFlow's signature)
    native: Function,
    logits: Any,
    num_samples: Any,
    seed: Any,
    output_dtype: Any = tf.int64,
    name: str | None = None,
) -> Tensor:
    def draw(shape: Tensor) -> Tensor:
        return tf.raw_ops.StatelessRandomUniform(shape=shape, seed=seed, dtype=tf.float32)

    if not _is_drawn_as_on_gpus(logits, num_samples):
        return native(logits, num_samples, seed, output_dtype, name)
    return _sample(logits, num_samples, output_dtype, draw)


@_replacements("tensorflow:raw_ops.Multinomial")
def _raw_multinomial(native: Function, **arguments: Any) -> Tensor:
    return _multinomial(lambda *_: native(**arguments), **arguments)


@_replacements("tensorflow:raw_ops.StatelessMultinomial")
def _raw_stateless_multinomial(native: Function, **arguments: Any) -> Tensor:
    return _stateless_multinomial(lambda *_: native(**arguments), **arguments)


def _is_drawn_as_on_gpus(logits: Any, num_samples: Any) -> bool:
    """Whether the operation is on a GPU, and its arguments are right; others it refuses itself."""
    shape = tf.convert_to_tensor(logits).shape
    has_classes = shape.rank == 2 and shape[1] != 0
    number = tf.get_static_value(num_samples)
    if not has_classes or (number is not None and number < 0):
        return False
    # in a graph, an operation for which no device is named is placed by the graph's caller
    named = "" if tf.executing_eagerly() else tf.constant(0).device
    return "CPU" not in (named or runtime().device_spec.to_string())


def _sample(logits: Any, num_samples: Any, dtype: Any, draw: Callable[[Tensor], Tensor]) -> Tensor:
    scores = tf.cast(logits, tf.float32)
    rows, classes = tf.unstack(tf.shape(scores))
    uniform = draw(tf.stack([rows, tf.cast(num_samples, tf.int32), classes]))
    noise = -tf.math.log(-tf.math.log(uniform + _LEAST))
    return tf.argmax(scores[:, tf.newaxis] + noise, axis=-1, output_type=dtype)
