"""Gradients, by tf.GradientTape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from xdevice.backends.tensorflow import placement

if TYPE_CHECKING:
    from collections.abc import Callable


def is_floating(tensor: Any) -> bool:
    return bool(tf.as_dtype(tensor.dtype).is_floating)


def value_and_gradients(
    call: Callable[[list[Any]], tuple[Any, Any]], parameters: list[Any]
) -> tuple[Any, Any, list[Any]]:
    variables = [_watched_apart(p) for p in parameters]
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(variables)
        value, aux = call(variables)
    found = tape.gradient(value, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO)
    return value, aux, [_beside(p, g) for p, g in zip(variables, found, strict=True)]


def _watched_apart(parameter: Any) -> Any:
    """The parameter's value as a tensor object of its own: one tensor given twice has two gradients."""
    value = tf.convert_to_tensor(parameter)
    with tf.device(value.device):
        return tf.identity(value)


def _beside(parameter: Any, gradient: Any) -> Any:
    """The gradient on its parameter's device: a tape computes it wherever the scope happens to be."""
    dense = tf.convert_to_tensor(gradient)  # that of a gather is a tf.IndexedSlices
    if not tf.executing_eagerly():
        return dense  # in a graph nothing has a place yet
    device = placement.device_of(parameter)
    return dense if placement.device_of(dense) is device else placement.move(dense, device, False)
