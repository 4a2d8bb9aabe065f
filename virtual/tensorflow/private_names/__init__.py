"""The private names of TensorFlow that only virtual GPUs replace or read: see ``names.txt``."""

from collections.abc import Callable
from typing import Any, TypeAlias

from xdevice.backends.kit.private_names import PrivateNames

# TensorFlow has no types for checkers
Capsule: TypeAlias = Any
Context: TypeAlias = Any
"""The state of TensorFlow's eager runtime: ``tensorflow.python.eager.context.Context``."""
DeviceName: TypeAlias = Any  # a string, or None
Error: TypeAlias = Any
Function: TypeAlias = Callable[..., Any]
Graph: TypeAlias = Any
Operation: TypeAlias = Any
Session: TypeAlias = Any
SessionConfig: TypeAlias = Any
"""A ``tf.compat.v1.ConfigProto``, or ``None``."""

LAST_TRIED = {"2.22.0rc0": "3.14", "2.21.0": "3.10 3.11 3.12 3.13"}
"""The newest version that has all of these names, by the Pythons that have wheels of it."""

names = PrivateNames(__file__, "tensorflow", "tensorflow", LAST_TRIED)
VIRTUAL, STAND_IN, NAMES = names.of("VIRTUAL"), names.of("STAND_IN"), names.of()
context: Any = names.module("tensorflow.python.eager.context")
ops: Any = names.module("tensorflow.python.framework.ops")


class Replacements:
    """Functions that replace TensorFlow's when `apply` is called.

    Each is called with TensorFlow's function, and then with the arguments.
    """

    def __init__(self) -> None:
        self._functions: list[tuple[str, Function]] = []

    def __call__(self, path: str) -> Callable[[Function], Function]:
        """A decorator of a function that replaces the one at the path."""

        def add(function: Function) -> Function:
            self._functions.append((path, function))
            return function

        return add

    def apply(self) -> None:
        for path, function in self._functions:
            names.in_place_of(path)(function)
