"""The private names of TensorFlow that this adapter replaces or reads: see ``names.txt``."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from xdevice.kit import private_names

LAST_TRIED = "2.21.0"

_homes = (
    *("eager.context", "eager.core", "pywrap_tfe", "framework.ops", "framework.constant_op", "data.ops.iterator_ops"),
    *("eager.backprop", "eager.record", "trackable.data_structures"),
)
_modules: Any = [import_module(f"tensorflow.python.{home}") for home in _homes]
context, core, engine, ops, constants, iterators, backprop, record, trackable = _modules

_lists = private_names.listed(__file__)
VIRTUAL, STAND_IN = _lists["VIRTUAL"], _lists["STAND_IN"]
NAMES = [*dict.fromkeys((*VIRTUAL, *STAND_IN, *_lists["OTHERS"]))]


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
            private_names.in_place_of(NAMES, path)(function)
