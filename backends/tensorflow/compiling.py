"""``tf.function`` and scopes."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any, TypeAlias

import tensorflow as tf

from xdevice.backends.tensorflow.private_names import names
from xdevice.backends.kit.compiling import Trees, over_tensors

Context: TypeAlias = AbstractContextManager[Any]
Function: TypeAlias = Callable[..., Any]
MissingContext: TypeAlias = Callable[[], Context | None]

_HOME = "tensorflow.python.eager.polymorphic_function"
# The traced operations of both have no device, and run in the scope of the call
_CLASSES = ("polymorphic_function:Function", "concrete_function:ConcreteFunction")


def is_tracing() -> bool:
    return not tf.executing_eagerly()


def follow(missing: MissingContext) -> None:
    names.require("compiled functions in the scope of a coroutine")
    for path in _CLASSES:
        call = f"{_HOME}.{path}.__call__"
        names.replace(call, _following(names.value(call), missing))


def _following(call: Function, missing: MissingContext) -> Function:
    @wraps(call)
    def follow_scope(*args: Any, **kwargs: Any) -> Any:
        context = missing() if tf.executing_eagerly() else None
        with context or nullcontext():
            return call(*args, **kwargs)

    return follow_scope


def compilers() -> tuple[str, ...]:
    """A graph, or XLA's code."""
    return "function", "xla"


def compiled(fn: Function, compiler: str) -> Function:
    def compile_tensors(traced: Function) -> Function:
        # Autograph would make another error of each that the function raises.
        graph: Function = tf.function(traced, autograph=False, jit_compile=compiler == "xla")
        return graph

    return over_tensors(fn, compile_tensors, _TREES)


def _flatten(tree: Any) -> tuple[list[Any], Any]:
    return tf.nest.flatten(tree), tree


_TREES = Trees(_flatten, tf.nest.pack_sequence_as, tf.is_tensor)
