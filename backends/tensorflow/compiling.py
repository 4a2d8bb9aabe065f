"""``tf.function``."""

from collections.abc import Callable
from typing import Any, TypeAlias

import tensorflow as tf

from xdevice.backends.kit.compiling import Trees, over_tensors

Function: TypeAlias = Callable[..., Any]


def is_tracing() -> bool:
    return not tf.executing_eagerly()


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
