"""A block that decorates functions, too; and functions of arrays with the standard's signature."""

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


def elementwise(ufunc: Any, name: str) -> Callable[..., Any]:
    """The ufunc with the array API standard's signature: one of a framework's does not name its arguments."""

    def one(x: Any, /) -> Any:
        return ufunc(x)

    def two(x1: Any, x2: Any, /) -> Any:
        return ufunc(x1, x2)

    call = one if ufunc.nin == 1 else two
    call.__name__, call.__doc__ = name, ufunc.__doc__
    return call
