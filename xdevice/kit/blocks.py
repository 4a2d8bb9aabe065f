"""Blocks: one that decorates functions, too; and one with environment variables that a framework reads once."""

import os
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
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
