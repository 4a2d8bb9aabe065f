"""``tf.function`` and scopes."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any

import tensorflow as tf
from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction
from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function


def is_tracing() -> bool:
    return not tf.executing_eagerly()


def follow(missing: Callable[[], AbstractContextManager[Any] | None]) -> None:
    for kind in (Function, ConcreteFunction):  # what they trace has no device, and runs where the call's tf.device says
        kind.__call__ = _following(kind.__call__, missing)


def _following(call: Callable[..., Any], missing: Callable[[], AbstractContextManager[Any] | None]) -> Any:
    @wraps(call)
    def follow_scope(self: Any, *args: Any, **kwargs: Any) -> Any:
        with (missing() if tf.executing_eagerly() else None) or nullcontext():
            return call(self, *args, **kwargs)

    return follow_scope
