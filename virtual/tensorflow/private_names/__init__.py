"""The private names of TensorFlow that only virtual GPUs replace or read: see ``names.txt``."""

from collections.abc import Callable
from typing import Any

from xdevice.kit.private_names import PrivateNames

LAST_TRIED = {"2.22.0rc0": "3.14", "2.21.0": "3.10 3.11 3.12 3.13"}
"""The newest version that has all of these names, by the Pythons that have wheels of it."""

names = PrivateNames(__file__, "tensorflow", "tensorflow", LAST_TRIED)
VIRTUAL, STAND_IN, NAMES = names.of("VIRTUAL"), names.of("STAND_IN"), names.of()
context: Any = names.module("tensorflow.python.eager.context")
ops: Any = names.module("tensorflow.python.framework.ops")


class Replacements:
    """Functions that are to take the places of TensorFlow's own, which they are given before the arguments."""

    def __init__(self) -> None:
        self._functions: list[tuple[str, Callable[..., Any]]] = []

    def __call__(self, path: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """A decorator of a function that is to take the place of the one at the path."""

        def keep(function: Callable[..., Any]) -> Callable[..., Any]:
            self._functions.append((path, function))
            return function

        return keep

    def apply(self) -> None:
        for path, function in self._functions:
            names.in_place_of(path)(function)
