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
from operator import length_hint
from types import GeneratorType
from typing import Any

_LATER = (Awaitable, Iterator, AsyncIterator)
_ITERABLE_COROUTINE = 0x100  # the flag of what types.coroutine decorates
_PLAIN = {"builtins", "itertools"}  # whose iterators only give items: map, zip, chain, …
_CONTAINERS: tuple[Any, ...] = (
    [],
    (),
    {}.keys(),
    {}.values(),
    {}.items(),
    set[Any](),
    "",
    "é",
    b"",
    bytearray(),
)
_DONE = {*map(type, map(iter, (*_CONTAINERS, range(0), range(1 << 64))))}
"""Iterators of what is in memory already: their steps run nothing."""

Block = AbstractContextManager[Any]


def runs_later(result: object) -> bool:
    """Whether the result's work is done when it is awaited, iterated, or entered as a block made by ``contextlib``."""
    if type(result) in _DONE or isinstance(result, IOBase):
        return False
    return isinstance(result, _LATER) or _is_generated_block(result)


def within(block: Block, result: object) -> object | None:
    """The same work, each step of it within the block; None where that cannot be: a task, another block."""
    if isinstance(result, Coroutine) or _is_iterable_coroutine(result):
        return _started(awaiting, result, block)
    if isinstance(result, Generator):
        return _started(generating, result, block)
    if isinstance(result, AsyncGenerator):
        return _started(generating_async, result, block)
    if isinstance(result, Awaitable):
        return None  # a task or a future, which has started, or works elsewhere
    if isinstance(result, Iterator):
        is_plain = type(result).__module__ in _PLAIN
        return _started(generating, _each(result), block) if is_plain else _Steps(result, block)
    return _AsyncSteps(result, block) if isinstance(result, AsyncIterator) else None


class _Stepped:
    """An iterator of another class: each step of it is within the block, and its attributes are its own."""

    def __init__(self, items: Any, block: Block) -> None:
        self._steps = items, block

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "_steps")[0], name)


class _Steps(_Stepped, Iterator[Any]):
    def __next__(self) -> Any:
        items, block = self._steps
        with block:
            return next(items)

    def __length_hint__(self) -> int:
        return length_hint(self._steps[0])


class _AsyncSteps(_Stepped, AsyncIterator[Any]):
    async def __anext__(self) -> Any:
        items, block = self._steps
        with block:
            return await anext(items)


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
