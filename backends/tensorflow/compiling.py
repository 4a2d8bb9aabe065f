"""``tf.function`` and scopes."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any

import tensorflow as tf

from xdevice.backends.tensorflow.private_names import names

_HOME = "tensorflow.python.eager.polymorphic_function"


def is_tracing() -> bool:
    return not tf.executing_eagerly()


def follow(missing: Callable[[], AbstractContextManager[Any] | None]) -> None:
    names.require("compiled functions in the scope of a coroutine")
    for path in (
        "polymorphic_function:Function",
        "concrete_function:ConcreteFunction",
    ):  # what they trace has no device, and runs where the call's tf.device says
        call = f"{_HOME}.{path}.__call__"
        names.replace(call, _following(names.value(call), missing))


def _following(
    call: Callable[..., Any], missing: Callable[[], AbstractContextManager[Any] | None]
) -> Any:
    @wraps(call)
    def follow_scope(self: Any, *args: Any, **kwargs: Any) -> Any:
        with (missing() if tf.executing_eagerly() else None) or nullcontext():
            return call(self, *args, **kwargs)

    return follow_scope
