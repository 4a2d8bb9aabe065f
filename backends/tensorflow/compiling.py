"""``tf.function`` and scopes."""

import tensorflow as tf


def is_tracing() -> bool:
    return not tf.executing_eagerly()


def reuses_traces() -> bool:
    return True  # operations without a device run where the call's own tf.device says
