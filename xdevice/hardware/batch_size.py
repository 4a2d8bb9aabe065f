"""Finding a batch size that fits into the memory of a device."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar, overload

from xdevice.errors import ArgumentError, ArgumentTypeError, OutOfMemoryError, shortened
from xdevice.framework.adapters import imported
from xdevice.framework.blocks import refuse_what_runs_later
from xdevice.hardware.memory import ask_memory, is_out_of_memory
from xdevice.integers import whole_number

__all__ = ["find_batch_size"]

P = ParamSpec("P")
T = TypeVar("T")
Function: TypeAlias = Callable[..., Any]

_CONSEQUENCE = "and may run out of memory then; pass a plain function that runs it to the end"


@overload
def find_batch_size(
    fn: Callable[Concatenate[int, P], T], *, start: int = 1024, minimum: int = 1
) -> Callable[P, T]: ...
@overload
def find_batch_size(
    fn: None = None, *, start: int = 1024, minimum: int = 1
) -> Callable[[Callable[Concatenate[int, P], T]], Callable[P, T]]: ...
def find_batch_size(
    fn: Callable[..., T] | None = None, *, start: int = 1024, minimum: int = 1
) -> Function:
    """A function that calls ``fn`` with decreasing batch sizes until it fits in memory.

    Each call begins with ``start`` and halves it as long as ``fn`` runs out of
    memory; memory is freed in between. A size found in one call does not limit
    the next. May be used as a decorator of functions, with or without options;
    the arguments of the call follow the batch size.

    Raises
    ------
    ArgumentError
        ``start`` or ``minimum`` is not a positive integer, or ``start`` is less than ``minimum``.
    ArgumentTypeError
        ``fn`` is a method that is not bound. When called: it has returned a coroutine or a generator.
    OutOfMemoryError
        When called: not even ``minimum`` fits. The framework's own error is its cause.

    Examples
    --------
    >>> from xdevice import find_batch_size
    >>> @find_batch_size(start=64)
    ... def train(batch_size, epochs):
    ...     if batch_size > 20:
    ...         raise MemoryError
    ...     return batch_size, epochs
    >>> train(3)
    (16, 3)
    """
    for name, number in (("start", start), ("minimum", minimum)):
        error = f"{name}={number!r} is not a batch size; give an integer of 1 or more"
        whole_number(number, error, 1)
    if start < minimum:
        raise ArgumentError(f"start={start} is under minimum={minimum}; give a larger start")
    if fn is None:
        return lambda function: find_batch_size(function, start=start, minimum=minimum)
    _check_function(fn)

    @wraps(fn)
    def run(*args: object, **kwargs: object) -> T:
        size = start
        while True:
            try:
                result = fn(size, *args, **kwargs)
                refuse_what_runs_later(result, fn, _CONSEQUENCE)
                return result
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                if size <= minimum:
                    message = f"out of memory even with a batch size of {size}"
                    cure = "make the model or the samples smaller"
                    raise OutOfMemoryError(f"{message}; {cure}") from error
            # Not within the except clause: there, the traceback keeps the
            # tensors of the failed call.
            size = max(size // 2, minimum)
            gc.collect()
            for owner in imported():
                ask_memory(owner, "empty_cache", None)

    return run


def _check_function(fn: Any) -> None:
    """Raise an error if the function does not take a batch size."""
    if not callable(fn):
        cure = "pass a function of the batch size, and start=… by name"
        raise ArgumentError(f"{shortened(fn)} cannot be called; {cure}")
    variables = getattr(getattr(fn, "__code__", None), "co_varnames", ())
    if variables[:1] == ("self",) and not hasattr(fn, "__self__"):
        reason = "is a method: its first argument is its object and not the batch size"
        cure = "wrap the bound method: find_batch_size(obj.method)"
        raise ArgumentTypeError(f"{fn.__qualname__} {reason}; {cure}")
