"""Results whose work is done later: coroutines, generators, iterators, …

`within` lets their steps run within a block, for functions that a block
decorates.
"""

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
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import cache, cached_property, wraps
from io import IOBase
from operator import length_hint
from types import GeneratorType
from typing import Any, TypeAlias

from xdevice.contract import Block, Function

Value: TypeAlias = Any
"""What a coroutine or a generator awaits, yields, is sent, or returns."""

AnyCoroutine: TypeAlias = Coroutine[Any, Any, Any]
AnyGenerator: TypeAlias = Generator[Any, Any, Any]
AnyAsyncGenerator: TypeAlias = AsyncGenerator[Any, Any]

Decorator: TypeAlias = Callable[[Function, Block], Function]
"""What makes a function whose steps run within the block."""

_RESULTS_THAT_RUN_LATER = (Awaitable, Iterator, AsyncIterator)
_CONTEXT_MANAGERS = (AbstractContextManager, AbstractAsyncContextManager)
_CO_ITERABLE_COROUTINE = 0x100  # the code flag that types.coroutine sets, as in `inspect`
# The modules of map, zip, chain, …: iterators that have nothing but steps.
_PLAIN_MODULES = {"builtins", "itertools"}
_CONTAINERS: tuple[Iterable[object], ...] = (
    [],
    (),
    {}.keys(),
    {}.values(),
    {}.items(),
    set[object](),
    "",
    "é",
    b"",
    bytearray(),
    range(0),
    range(1 << 64),
)
_ITERATORS_OF_CONTAINERS = frozenset(type(iter(container)) for container in _CONTAINERS)
"""Iterators over memory, whose steps run no code of the program."""


def runs_later(result: object) -> bool:
    """Whether the result's work is done later: when it is awaited or iterated.

    Or when it is entered, if a function decorated by ``contextmanager`` has
    returned it.
    """
    if type(result) in _ITERATORS_OF_CONTAINERS or isinstance(result, IOBase):
        return False
    return isinstance(result, _RESULTS_THAT_RUN_LATER) or _is_generated_block(result)


def within(block: Block, result: object) -> object | None:
    """The same work, each step of it within the block.

    ``None`` for a result that cannot be wrapped: a task or a future, which has
    started or runs elsewhere, and a block made by ``contextlib``.
    """
    decorate = _decorator_for(result)
    if decorate is not None:
        return _started(decorate, result, block)
    if isinstance(result, Iterator) and type(result).__module__ in _PLAIN_MODULES:
        return _started(generating, _each(result), block)
    is_task = isinstance(result, Awaitable) and not isinstance(result, Coroutine)
    if is_task or not isinstance(result, _RESULTS_THAT_RUN_LATER):
        return None
    return _wrapped(result, block)


def _decorator_for(result: object) -> Decorator | None:
    """What decorates a function that returns this result.

    ``None`` if the result has to be wrapped.

    A coroutine that is also an asynchronous context manager, as an HTTP
    request of aiohttp, has to: a plain coroutine could not be entered.
    """
    if isinstance(result, Coroutine):
        if isinstance(result, _CONTEXT_MANAGERS):
            return None
        return awaiting
    if _is_iterable_coroutine(result):
        return awaiting
    if isinstance(result, Generator):
        return generating
    if isinstance(result, AsyncGenerator):
        return generating_async
    return None


class _Wrapper:
    """An object of another class: its steps run within the block.

    Its attributes are its own.
    """

    def __init__(self, wrapped: Any, block: Block) -> None:
        self._wrapped = wrapped
        self._block = block

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "_wrapped"), name)


class _Iterated(_Wrapper, Iterator[Value]):
    def __next__(self) -> Value:
        with self._block:
            return next(self._wrapped)

    def __length_hint__(self) -> int:
        return length_hint(self._wrapped)


class _IteratedAsync(_Wrapper, AsyncIterator[Value]):
    async def __anext__(self) -> Value:
        with self._block:
            return await anext(self._wrapped)


class _Awaited(_Wrapper, Coroutine[Value, Value, Value]):
    @cached_property
    def _coroutine(self) -> AnyCoroutine:
        wrapped = self._wrapped
        return awaiting(lambda: wrapped, self._block)()

    def __await__(self) -> AnyGenerator:
        return self._coroutine.__await__()

    def send(self, value: Value) -> Value:
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Value:
        return self._coroutine.throw(*error)

    def close(self) -> None:
        if "_coroutine" in vars(self):
            self._coroutine.close()
        self._wrapped.close()


class _Entered(_Wrapper, AbstractContextManager[Value]):
    def __enter__(self) -> Value:
        with self._block:
            entered = self._wrapped.__enter__()
        if entered is self._wrapped:
            return self
        return entered

    def __exit__(self, *error: Any) -> bool | None:
        with self._block:
            suppresses: bool | None = self._wrapped.__exit__(*error)
        return suppresses


class _EnteredAsync(_Wrapper, AbstractAsyncContextManager[Value]):
    async def __aenter__(self) -> Value:
        with self._block:
            entered = await self._wrapped.__aenter__()
        if entered is self._wrapped:
            return self
        return entered

    async def __aexit__(self, *error: Any) -> bool | None:
        with self._block:
            suppresses: bool | None = await self._wrapped.__aexit__(*error)
        return suppresses


_WRAPPERS: dict[type, type[_Wrapper]] = {
    Coroutine: _Awaited,
    Iterator: _Iterated,
    AsyncIterator: _IteratedAsync,
    AbstractContextManager: _Entered,
    AbstractAsyncContextManager: _EnteredAsync,
}


def _wrapped(result: object, block: Block) -> _Wrapper:
    """The result in a wrapper of the same kinds: iterator, awaitable, …"""
    wrappers = [wrapper for protocol, wrapper in _WRAPPERS.items() if isinstance(result, protocol)]
    return _combined(tuple(wrappers))(result, block)


@cache
def _combined(wrappers: tuple[type[_Wrapper], ...]) -> type[_Wrapper]:
    return type("Wrapped", wrappers, {})


def _started(decorate: Decorator, result: Any, block: Block) -> object:
    """The result of a decorated function, under the result's own name."""
    named = wraps(result, ("__name__", "__qualname__"), ())
    return named(decorate(lambda: result, block))()


def awaiting(start: Function, block: Block) -> Callable[..., AnyCoroutine]:
    """A coroutine function that awaits within the block.

    The block stays open until then, so that it also holds for tasks that the
    coroutine starts.
    """

    async def awaited(*args: Any, **kwargs: Any) -> Value:
        with block:
            return await start(*args, **kwargs)

    return awaited


def generating(start: Function, block: Block) -> Callable[..., AnyGenerator]:
    """A generator function that runs each step within the block.

    The generator's caller runs outside of the block.
    """

    def generated(*args: Any, **kwargs: Any) -> AnyGenerator:
        with block:
            source = start(*args, **kwargs)
        step = source.send
        value: Value = None
        while True:
            with block:
                try:
                    item = step(value)
                except StopIteration as end:
                    return end.value
            try:
                value = yield item
                step = source.send
            except GeneratorExit:
                with block:
                    source.close()
                raise
            except BaseException as error:
                step = source.throw
                value = error

    return generated


def generating_async(start: Function, block: Block) -> Callable[..., AnyAsyncGenerator]:
    """The same for asynchronous generator functions."""

    async def generated(*args: Any, **kwargs: Any) -> AnyAsyncGenerator:
        with block:
            source = start(*args, **kwargs)
        step = source.asend
        value: Value = None
        while True:
            with block:
                try:
                    item = await step(value)
                except StopAsyncIteration:
                    return
            try:
                value = yield item
                step = source.asend
            except GeneratorExit:
                with block:
                    await source.aclose()
                raise
            except BaseException as error:
                step = source.athrow
                value = error

    return generated


def _each(items: Iterable[Value]) -> AnyGenerator:
    yield from items


def _is_iterable_coroutine(result: object) -> bool:
    if not isinstance(result, GeneratorType):
        return False
    return bool(result.gi_code.co_flags & _CO_ITERABLE_COROUTINE)


def _is_generated_block(result: object) -> bool:
    """Whether a function decorated by ``contextmanager`` returned it.

    Or one decorated by ``asynccontextmanager``.
    """
    if not isinstance(result, _CONTEXT_MANAGERS):
        return False
    return isinstance(getattr(result, "gen", None), (Generator, AsyncGenerator))
