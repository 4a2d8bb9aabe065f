"""How many virtual GPUs this process is to have: an adapter may need to know before it imports its framework."""

from __future__ import annotations

import os

from xdevice.device import as_integer
from xdevice.errors import ArgumentError, ArgumentTypeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ENV = "XDEVICE_VIRTUAL_GPUS"
MOST = 64
"""The most that have been tried."""


class Request:
    """How many, 0 for none; whether real GPUs are to be hidden; and what asked for them."""

    __slots__ = ("force", "number", "source")

    def __init__(self, number: int, force: bool, source: str) -> None:
        self.number, self.force, self.source = number, force, source


_made: Request | None = None


def current() -> Request:
    """The request of `virtual_gpus` if there is one, else that of the environment."""
    if _made is not None:
        return _made
    text = os.environ.get(ENV, "").strip()
    source = f"{ENV}={text}"
    return Request(checked(text, source) if text not in ("", "0") else 0, False, source)


def is_in_environment() -> bool:
    """Whether the environment asks for virtual GPUs, of whatever number."""
    return os.environ.get(ENV, "").strip() not in ("", "0")


def make(number: int, force: bool) -> Request | None:
    """Make the request; the one before it comes back, to be put back if this one cannot be met."""
    global _made
    before, _made = _made, Request(number, force, f"virtual_gpus({number})")
    return before


def put_back(before: Request | None) -> None:
    """Undo `make`."""
    global _made
    _made = before


def checked(n: Any, source: str) -> int:
    """The number, if there can be so many."""
    from_environment = source.startswith(ENV)
    number = as_integer(int(n) if isinstance(n, str) and n.isascii() and n.isdigit() and from_environment else n)
    hint = f"give an integer from 1 to {MOST}"
    if number is None:
        error = ArgumentError if from_environment else ArgumentTypeError
        raise error(f"{source} is not a number of GPUs; {hint}")
    if not 1 <= number <= MOST:
        raise ArgumentError(f"{source} is out of range; {hint}")
    return number
