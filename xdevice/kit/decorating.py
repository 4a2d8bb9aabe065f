"""A block that decorates functions, too."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import wraps
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import Any, TypeVar

from xdevice.errors import ArgumentTypeError

F = TypeVar("F", bound=Callable[..., Any])


def decorated(fn: F, block: AbstractContextManager[Any], name: str) -> F:
    """The function, within the block at each call; ``name`` is for the error of what cannot be decorated."""
    if not callable(fn) or isasyncgenfunction(fn) or isgeneratorfunction(fn):
        raise ArgumentTypeError(f"{name} cannot decorate {fn!r}; decorate a function, or write `with {name}:`")

    @wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        with block:
            return fn(*args, **kwargs)

    @wraps(fn)
    async def await_call(*args: Any, **kwargs: Any) -> Any:
        with block:
            return await fn(*args, **kwargs)

    return await_call if iscoroutinefunction(fn) else call  # type: ignore[return-value]  # wraps keeps it
