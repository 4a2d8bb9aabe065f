"""The private names of TensorFlow that this adapter replaces or reads: see ``names.txt``."""

from collections.abc import Callable
from typing import Any

from xdevice.kit.private_names import PrivateNames

LAST_TRIED = {"2.22.0rc0": "3.14", "2.21.0": "3.10 3.11 3.12 3.13"}
"""The newest version that has all of these names, and passed on virtual GPUs; by version, the Pythons with wheels."""

_homes = (
    *(
        "eager.context",
        "eager.core",
        "pywrap_tfe",
        "framework.ops",
        "framework.constant_op",
        "data.ops.iterator_ops",
    ),
    "eager.backprop",
)
names = PrivateNames(__file__, "tensorflow", "tensorflow", LAST_TRIED)
VIRTUAL, STAND_IN, NAMES = names.of("VIRTUAL"), names.of("STAND_IN"), names.of()
_modules: Any = [names.module(f"tensorflow.python.{home}") for home in _homes]
context, core, engine, ops, constants, iterators, backprop = _modules
unrecorded: Any = names.value(
    "tensorflow.python.eager.record:stop_recording"
)  # a block that the gradient tape does not see
runtime: Any = names.value(
    "tensorflow.python.eager.context:context"
)  # a function: the runtime, started or not


class Instead:
    """Functions that are to take the places of TensorFlow's own, which they are given before the arguments."""

    def __init__(self) -> None:
        self._functions: list[tuple[str, Callable[..., Any]]] = []

    def __call__(self, path: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def keep(function: Callable[..., Any]) -> Callable[..., Any]:
            self._functions.append((path, function))
            return function

        return keep

    def put(self) -> None:
        for path, function in self._functions:
            names.in_place_of(path)(function)
