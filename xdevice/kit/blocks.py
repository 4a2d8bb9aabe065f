"""Blocks that also decorate functions, and a block of environment variables."""

import os
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from functools import wraps
from inspect import (
    CO_ITERABLE_COROUTINE,
    isasyncgenfunction,
    iscoroutinefunction,
    isgeneratorfunction,
)
from typing import Any, TypeVar

from xdevice.contract import Block, Function
from xdevice.errors import ArgumentTypeError, shortened
from xdevice.kit.later import awaiting, generating, generating_async, runs_later, within

F = TypeVar("F", bound=Function)


def decorated(fn: F, block: Block, name: str) -> F:
    """The function, within the block at each call.

    A result whose work is done later runs within the block, too. ``name`` is
    the block's name in errors.
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

    new_function: Function = call
    # `inspect` has to recognize the new function as one of the same kind, as
    # pytest does with fixtures
    for is_of_kind, decorator in _DECORATORS.items():
        if is_of_kind(fn):
            new_function = decorator(fn, block)
    return wraps(fn)(new_function)  # type: ignore[return-value]  # wraps keeps it


def _is_generator_function(fn: Function) -> bool:
    """Whether a call returns a generator that is not a coroutine.

    ``types.coroutine`` makes coroutines of generators.
    """
    if not isgeneratorfunction(fn):
        return False
    function = getattr(fn, "func", fn)  # a partial's
    code = getattr(function, "__code__", None)
    return code is not None and not code.co_flags & CO_ITERABLE_COROUTINE


_DECORATORS: dict[Callable[[Any], bool], Callable[[Function, Block], Function]] = {
    iscoroutinefunction: awaiting,
    _is_generator_function: generating,
    isasyncgenfunction: generating_async,
}


def _runs_outside(fn: Function, result: object, name: str) -> ArgumentTypeError:
    hint = "put the decorator below @contextmanager"
    if isinstance(result, Awaitable):
        hint = "await it in an `async def`, and decorate that"
    function = getattr(fn, "__name__", shortened(fn))
    return ArgumentTypeError(
        f"{function}() returned {shortened(result)}, which runs after its call and so outside "
        f"{name}; {hint}"
    )


@contextmanager
def environment(settings: Mapping[str, str]) -> Generator[None, None, None]:
    """Set these environment variables, and restore their old values.

    Some frameworks read such a variable only once, when they start.
    """
    old_values = {name: os.environ[name] for name in settings if name in os.environ}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name in settings.keys() - old_values.keys():
            os.environ.pop(name, None)
        os.environ.update(old_values)
