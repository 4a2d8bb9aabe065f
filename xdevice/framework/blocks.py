"""Blocks that also decorate functions."""

from collections.abc import AsyncGenerator, Awaitable, Coroutine, Generator
from contextlib import AsyncContextDecorator, ContextDecorator
from functools import wraps
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import Any, TypeVar

from xdevice.contract import Block, Function
from xdevice.errors import ArgumentTypeError, shortened

F = TypeVar("F", bound=Function)

_RUN_LATER = (Awaitable, Generator, AsyncGenerator, ContextDecorator, AsyncContextDecorator)


def decorated(fn: F, block: Block, name: str) -> F:
    """The function, plain or ``async def``, within the block at each call.

    ``name`` is the block's name in errors.
    """
    if not callable(fn) or isinstance(fn, (type, staticmethod, classmethod)):
        raise ArgumentTypeError(
            f"{name} cannot decorate {fn!r}; decorate a function, or write `with {name}:`"
        )
    if isgeneratorfunction(fn) or isasyncgenfunction(fn):
        raise ArgumentTypeError(
            f"{name} cannot decorate {shortened(fn)}, which is a generator; "
            f"write `with {name}:` inside it, around what it computes"
        )

    def call(*args: Any, **kwargs: Any) -> Any:
        with block:
            result = fn(*args, **kwargs)
        refuse_what_runs_later(result, fn, f"and so outside {name}; write `with {name}:` inside it")
        return result

    async def call_async(*args: Any, **kwargs: Any) -> Any:
        with block:
            return await fn(*args, **kwargs)

    new_function: Function = call_async if iscoroutinefunction(fn) else call
    return wraps(fn)(new_function)  # type: ignore[return-value]  # wraps keeps it


def refuse_what_runs_later(result: object, fn: Function, consequence: str) -> None:
    """Raise an error if the function returned a coroutine, a generator or the like.

    ``contextmanager`` returns a `ContextDecorator`, whose body is a generator.
    """
    if not isinstance(result, _RUN_LATER):
        return
    if isinstance(result, Coroutine):
        result.close()  # or Python warns that it was never awaited
    function = getattr(fn, "__name__", shortened(fn))
    raise ArgumentTypeError(
        f"{function}() returned {shortened(result)}, which runs after the call {consequence}"
    )
