"""What MXNet writes for its library: every argument of an operator is handed over as text, made by ``str``.

NumPy 2 writes ``np.int64(2)`` for a number in a tuple, where MXNet 1.9.1 expects ``2``. apache/mxnet is archived:
no release will mend this. NumPy's own printing stays as it is.
"""

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from xdevice.backends.mxnet.private_names import TEXT

_translations: list[Callable[[Any], Any]] = []


class _AnyText(type):
    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, str)


class _Text(str, metaclass=_AnyText):
    """``str`` as these modules see it: the same, but for NumPy's numbers."""

    def __new__(cls, value: Any = "", *args: Any) -> Any:
        if _translations:
            value = _translations[0](value)
        text = str(value, *args)
        return str(_plain(value)) if "np." in text else text


def write_plainly() -> None:
    """Let MXNet write NumPy's numbers as it could read them before NumPy 2."""
    if str((np.int64(2),)) != "(2,)":
        _replace_str()


def translate(value_for: Callable[[Any], Any]) -> None:
    """Let MXNet write ``value_for(value)`` in place of a value."""
    _translations[:] = (value_for,)
    _replace_str()


def _replace_str() -> None:
    for name in TEXT:
        vars(importlib.import_module(f"mxnet.{name}"))["str"] = _Text


def _plain(value: Any) -> Any:
    if type(value) in (tuple, list):
        return type(value)(map(_plain, value))
    return value.item() if isinstance(value, np.generic) else value
