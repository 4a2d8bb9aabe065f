"""Blocks: those that decorate functions, too.

And one with environment variables that a framework reads once.
"""

import os
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from inspect import (
    CO_ITERABLE_COROUTINE,
    isasyncgenfunction,
    iscoroutinefunction,
    isgeneratorfunction,
)
from typing import Any, TypeVar

from xdevice.errors import ArgumentTypeError, shortened
from xdevice.kit.later import awaiting, generating, generating_async, runs_later, within

F = TypeVar("F", bound=Callable[..., Any])


def decorated(fn: F, block: AbstractContextManager[Any], name: str) -> F:
    """The function, within the block at each call; ``name`` is for the error of what cannot be decorated.

    What a call gives back may not have run yet: it runs within the block, too.
    """
    if isinstance(fn, (staticmethod, classmethod)):
        return type(fn)(decorated(fn.__func__, block, name))
    if not callable(fn) or isinstance(fn, type):
        raise ArgumentTypeError(
            f"{name} cannot decorate {fn!r}; decorate a function, or write `with {name}:`"
        )

    def call(*args: Any, **kwargs: Any) -> Any:
        with block:
            result = fn(*args, **kwargs)
        if not runs_later(result):
            return result
        started = within(block, result)
        if started is None:
            raise _runs_outside(fn, result, name)
        return started

    made: Callable[..., Any] = call
    for is_such, function in _FUNCTIONS.items():
        if is_such(
            fn
        ):  # and so is the decorated one, for who asks `inspect`, as pytest does of fixtures
            made = function(fn, block)
    return wraps(fn)(made)  # type: ignore[return-value]  # wraps keeps it


def _is_generator_function(fn: Callable[..., Any]) -> bool:
    """Whether it gives a generator, and not a coroutine written as one (``types.coroutine``)."""
    code = getattr(getattr(fn, "func", fn), "__code__", None)  # of a partial: of its function
    return (
        isgeneratorfunction(fn) and code is not None and not code.co_flags & CO_ITERABLE_COROUTINE
    )


_FUNCTIONS: dict[Callable[[Any], bool], Callable[..., Callable[..., Any]]] = {
    iscoroutinefunction: awaiting,
    _is_generator_function: generating,
    isasyncgenfunction: generating_async,
}


def _runs_outside(fn: Callable[..., Any], result: object, name: str) -> ArgumentTypeError:
    cure = "put the decorator below @contextmanager"
    if isinstance(result, Awaitable):
        cure = "await it in an `async def`, and decorate that"
    given = f"{getattr(fn, '__name__', shortened(fn))}() returned {shortened(result)}"
    return ArgumentTypeError(f"{given}, which runs after its call and so outside {name}; {cure}")


@contextmanager
def environment(settings: Mapping[str, str]) -> Generator[None, None, None]:
    """Set these variables, and put back what was there."""
    before = {name: os.environ[name] for name in settings if name in os.environ}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name in settings.keys() - before.keys():
            os.environ.pop(name, None)
        os.environ.update(before)
