"""Errors of signal handlers, which do not belong to a batch."""

import signal
from collections.abc import Iterator
from functools import partial
from traceback import walk_tb
from types import CodeType
from typing import Any


def is_raised_by_handler(error: Exception) -> bool:
    """Whether a signal handler raised the error, by its traceback.

    The handlers are those that are installed now.
    """
    handlers = set(_handlers())
    return any(frame.f_code in handlers for frame, _ in walk_tb(error.__traceback__))


def _handlers() -> Iterator[CodeType]:
    for number in signal.valid_signals():
        handler: Any = signal.getsignal(number)
        while isinstance(handler, partial):
            handler = handler.func
        if not callable(handler):  # SIG_DFL or SIG_IGN
            continue
        code = getattr(handler, "__code__", None)
        if code is None:
            code = getattr(type(handler).__call__, "__code__", None)
        if isinstance(code, CodeType):
            yield code
