"""What a call has given back and not run yet: coroutines, generators, and what else runs when awaited or iterated."""

from __future__ import annotations

from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
)
from contextlib import AbstractContextManager
from functools import wraps
from io import IOBase
from types import GeneratorType
from typing import Any

_LATER = (Awaitable, Iterator, AsyncIterator)
_ITERABLE_COROUTINE = 0x100  # the flag of what types.coroutine decorates
_PLAIN = {
    "builtins",
    "itertools",
}  # whose iterators can nothing but be iterated: map, zip, chain, …

Block = AbstractContextManager[Any]


def runs_later(result: object) -> bool:
    """Whether the result's work is done when it is awaited, iterated, or entered as a block made by ``contextlib``."""
    return (isinstance(result, _LATER) and not isinstance(result, IOBase)) or _is_generated_block(
        result
    )


def within(block: Block, result: object) -> object | None:
    """The same work, each step of it within the block; None where only the result's own class can do it."""
    if isinstance(result, Coroutine) or _is_iterable_coroutine(result):
        return _started(awaiting, result, block)
    if isinstance(result, Generator):
        return _started(generating, result, block)
    if isinstance(result, AsyncGenerator):
        return _started(generating_async, result, block)
    if isinstance(result, Iterator) and type(result).__module__ in _PLAIN:
        return _started(generating, _each(result), block)
    return None


def _started(function: Callable[..., Callable[..., Any]], result: object, block: Block) -> object:
    return wraps(result, ("__name__", "__qualname__"), ())(function(lambda: result, block))()  # type: ignore[arg-type]


def awaiting(start: Callable[..., Any], block: Block) -> Callable[..., Coroutine[Any, Any, Any]]:
    """A coroutine function that awaits within the block, which stays open meanwhile: also for tasks started in it."""

    async def awaited(*args: Any, **kwargs: Any) -> Any:
        with block:
            return await start(*args, **kwargs)

    return awaited


def generating(start: Callable[..., Any], block: Block) -> Callable[..., Generator[Any, Any, Any]]:
    """A generator function that runs each step within the block; its caller, between two, is outside."""

    def generated(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        with block:
            source = start(*args, **kwargs)
        step, value = source.send, None
        while True:
            with block:
                try:
                    item = step(value)
                except StopIteration as end:
                    return end.value
            try:
                step, value = source.send, (yield item)
            except GeneratorExit:
                with block:
                    source.close()
                raise
            except BaseException as error:
                step, value = source.throw, error

    return generated


def generating_async(
    start: Callable[..., Any], block: Block
) -> Callable[..., AsyncGenerator[Any, Any]]:
    """An asynchronous generator function that runs each step within the block."""

    async def generated(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        with block:
            source = start(*args, **kwargs)
        step, value = source.asend, None
        while True:
            with block:
                try:
                    item = await step(value)
                except StopAsyncIteration:
                    return
            try:
                step, value = source.asend, (yield item)
            except GeneratorExit:
                with block:
                    await source.aclose()
                raise
            except BaseException as error:
                step, value = source.athrow, error

    return generated


def _each(items: Iterable[Any]) -> Generator[Any, None, None]:
    yield from items


def _is_iterable_coroutine(result: object) -> bool:
    return isinstance(result, GeneratorType) and bool(result.gi_code.co_flags & _ITERABLE_COROUTINE)


def _is_generated_block(result: object) -> bool:
    """Whether it is what a function decorated by ``contextmanager`` or ``asynccontextmanager`` gives."""
    is_block = hasattr(type(result), "__enter__") or hasattr(type(result), "__aenter__")
    return is_block and isinstance(getattr(result, "gen", None), (Generator, AsyncGenerator))
