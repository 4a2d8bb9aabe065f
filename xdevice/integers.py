"""Integers that users give."""

import operator
from typing import Any

from xdevice.errors import ArgumentError, ArgumentTypeError


def as_integer(value: Any) -> int | None:
    """The value as an int, if it is an integer.

    ``True`` and ``1.0`` are not.
    """
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except Exception:  # not only TypeError: a tensor of several numbers may raise any
        return None


def whole_number(value: object, message: str, least: int = 0, end: float = float("inf")) -> int:
    """The value as an int from ``least`` to below ``end``.

    Else an error with that message.
    """
    number = as_integer(value)
    if number is None:
        raise ArgumentTypeError(message)
    if not least <= number < end:
        raise ArgumentError(message)
    return number
