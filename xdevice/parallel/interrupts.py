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
    codes = [frame.f_code for frame, _ in walk_tb(error.__traceback__)]
    if len(codes) < 2:  # the caller's own: the usual end of a loop, or an error of a C function
        return False
    handlers = set(_handlers())
    return any(code in handlers for code in codes)


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
