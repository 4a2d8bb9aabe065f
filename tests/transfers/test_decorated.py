"""A decorated function is within its block whatever it is: what counts is what its call gives back."""

import asyncio
import copy
import functools
import inspect
import io
import itertools
import operator
import os
import types
from collections.abc import Coroutine
from contextlib import asynccontextmanager, contextmanager

import pytest

from xdevice import ArgumentTypeError, TransferError, find_batch_size, strict, transfer_guard
from xdevice.contract import Copy
from xdevice.device import Device
from xdevice.framework import watched
from xdevice.framework.adapters import find
from xdevice.transfers import watching

FETCH = Copy("copy", "cpu", 8, Device("gpu", 0), Device("cpu", 0))
TELLER = watching.CopyNotifier(find("numpy"))


def is_guarded():
    try:
        TELLER.see(FETCH)
    except TransferError:
        return True
    return False


def is_strict():
    return watched._mixing._blocks > 0


@pytest.fixture(
    params=[(transfer_guard, is_guarded), (strict, is_strict)], ids=["transfer_guard", "strict"]
)
def block(request):
    """A block, and whether the caller is within it."""
    make, inside = request.param
    return make(), inside


def is_within(kind, decorate, inside):
    """What is decorated, as a function without arguments; each answers whether its body is within the block."""

    def plain():
        return inside()

    async def waits():
        await asyncio.sleep(0)
        return inside()

    def generates():
        yield inside()

    async def generates_async():
        await asyncio.sleep(0)
        yield inside()

    @types.coroutine
    def waits_in_old_style():
        yield from asyncio.sleep(0).__await__()
        return inside()

    functions = {
        "plain": plain,
        "coroutine": waits,
        "generator": generates,
        "async generator": generates_async,
    }
    what, _, how = kind.partition(", ")
    fn = functions.get(what, waits_in_old_style)

    class Callable:
        def __call__(self):
            return fn()

        @decorate
        def method(self):
            return fn()

        @decorate
        @staticmethod
        def static():
            return fn()

        @decorate
        @classmethod
        def of_class(cls):
            assert issubclass(cls, Callable)
            return fn()

    class Asynchronous:
        async def __call__(self):
            return await waits()

    @functools.wraps(fn)
    def wrapper(*args):
        return fn(*args)

    ways = {
        "": lambda: decorate(fn),
        "wraps": lambda: decorate(wrapper),
        "partial": lambda: decorate(functools.partial(fn)),
        "partial of a wrapper": lambda: decorate(functools.partial(wrapper)),
        "object": lambda: decorate(Callable()),
        "async object": lambda: decorate(Asynchronous()),
        "method": lambda: Callable().method,
        "staticmethod": lambda: Callable().static,
        "classmethod": lambda: Callable.of_class,
        "lambda": lambda: decorate(lambda: fn()),
        "map": lambda: decorate(lambda: map(inside.__class__.__call__, [inside])),
        "zip": lambda: decorate(lambda: itertools.chain.from_iterable(zip(fn(), strict=True))),
    }
    return ways[how]()


def answer(result):
    """What the call gives in the end."""
    if inspect.isawaitable(result):
        return asyncio.run(awaited(result))
    if hasattr(result, "__aiter__"):
        return asyncio.run(first(result))
    return next(result) if hasattr(result, "__next__") else result


async def awaited(result):
    return await result


async def first(result):
    return await anext(result)


WAYS = [
    "",
    "wraps",
    "partial",
    "partial of a wrapper",
    "object",
    "method",
    "staticmethod",
    "classmethod",
    "lambda",
]
KINDS = ["plain", "coroutine", "generator", "async generator", "old coroutine"]


@pytest.mark.parametrize(
    "kind", [f"{kind}, {way}" for kind in KINDS for way in WAYS] + ["coroutine, async object"]
)
def test_the_body_runs_within_the_block(block, kind):
    decorate, inside = block
    assert answer(is_within(kind, decorate, inside)()) is True
    assert not inside()


@pytest.mark.parametrize("kind", ["generator, map", "generator, zip"])
def test_iterators_of_the_standard_library_run_within_the_block(block, kind):
    decorate, inside = block
    assert list(is_within(kind, decorate, inside)()) == [True]


def test_a_generator_is_within_the_block_at_each_step_and_its_caller_outside(block):
    decorate, inside = block
    steps = []

    @decorate
    def generate():
        steps.append(inside())
        try:
            given = yield 1
            steps.append((given, inside()))
            yield 2
        except KeyError as error:
            steps.append((str(error), inside()))
        try:
            yield 3
        finally:
            steps.append(("end", inside()))
        return 4

    generator = generate()
    assert (next(generator), inside()) == (1, False)
    assert (generator.send("given"), inside()) == (2, False)
    assert (generator.throw(KeyError("thrown")), inside()) == (3, False)
    generator.close()
    assert steps == [True, ("given", True), ("'thrown'", True), ("end", True)]
    assert not inside()

    def delegate():
        return (yield from generate())

    delegating = delegate()
    assert [next(delegating), next(delegating)] == [1, 2]
    assert delegating.throw(KeyError()) == 3
    with pytest.raises(StopIteration) as end:
        next(delegating)
    assert end.value.value == 4
    with pytest.raises(ZeroDivisionError):
        generate().throw(ZeroDivisionError)


def test_an_async_generator_is_within_the_block_at_each_step_and_its_caller_outside(block):
    decorate, inside = block
    steps = []

    @decorate
    async def generate():
        try:
            steps.append(((yield 1), inside()))
            yield 2
        except KeyError:
            steps.append(("thrown", inside()))
        try:
            yield 3
        finally:
            await asyncio.sleep(0)
            steps.append(("end", inside()))

    async def drive():
        generator = generate()
        assert (await generator.__anext__(), inside()) == (1, False)
        assert (await generator.asend("given"), inside()) == (2, False)
        assert (await generator.athrow(KeyError()), inside()) == (3, False)
        await generator.aclose()
        assert not inside()
        assert [each async for each in generate()] == [1, 2, 3]

    asyncio.run(drive())
    assert steps[:3] == [("given", True), ("thrown", True), ("end", True)]


def test_a_coroutine_holds_the_block_for_the_tasks_that_it_starts(block):
    decorate, inside = block

    async def child():
        await asyncio.sleep(0)
        return inside()

    @decorate
    async def parent():
        return await asyncio.gather(child(), child())

    async def both():  # one block, in two tasks at a time
        return await asyncio.gather(parent(), parent())

    assert asyncio.run(both()) == [[True, True]] * 2
    assert not inside()


def test_what_inspect_says_of_a_function_holds_when_it_is_decorated(block):
    decorate, inside = block
    made = {kind: is_within(f"{kind}, ", decorate, inside) for kind in KINDS}
    assert [kind for kind in KINDS if inspect.iscoroutinefunction(made[kind])] == ["coroutine"]
    assert [kind for kind in KINDS if inspect.isgeneratorfunction(made[kind])] == ["generator"]
    assert [kind for kind in KINDS if inspect.isasyncgenfunction(made[kind])] == ["async generator"]
    coroutine = is_within("coroutine, lambda", decorate, inside)()
    assert coroutine.__name__ == "waits"
    assert answer(coroutine)


class Batches:
    """An iterator as data loaders have it, with more than its steps."""

    taken = 0

    def __init__(self, inside):
        self.inside = inside

    def __iter__(self):
        return self

    def __next__(self):
        if self.taken == 2:
            raise StopIteration
        self.taken += 1
        return self.inside()

    def __length_hint__(self):
        return 2 - self.taken


class Pages(Batches):
    __iter__ = __next__ = None

    def __aiter__(self):
        return self

    async def __anext__(self):
        await asyncio.sleep(0)
        if self.taken == 2:
            raise StopAsyncIteration
        self.taken += 1
        return self.inside()


def test_iterators_of_another_class_are_within_the_block_at_each_step(block):
    decorate, inside = block
    found = decorate(lambda: Batches(inside))()
    assert iter(found) is found
    assert (next(found), inside(), found.taken) == (True, False, 1)
    assert operator.length_hint(found) == 1
    assert list(found) == [True]
    assert not inside()
    with pytest.raises(AttributeError, match="'Batches' object has no attribute 'missing'"):
        found.missing  # noqa: B018  (asking is the test)
    assert copy.copy(found).taken == 2


def test_asynchronous_iterators_of_another_class_are_within_the_block_at_each_step(block):
    decorate, inside = block

    async def drive():
        found = decorate(lambda: Pages(inside))()
        assert await anext(found)
        assert not inside()
        assert found.taken == 1
        return [each async for each in found]

    assert asyncio.run(drive()) == [True]


class Request(Coroutine):
    """A coroutine that is an asynchronous context manager, too, as an HTTP client's requests are."""

    def __init__(self, inside):
        self.inside = inside
        self.steps = []
        self.coroutine = self.connect()

    async def connect(self):
        await asyncio.sleep(0)
        self.steps.append(("connected", self.inside()))
        return self

    def __await__(self):
        return self.coroutine.__await__()

    def send(self, value):
        return self.coroutine.send(value)

    def throw(self, *error):
        return self.coroutine.throw(*error)

    def close(self):
        self.coroutine.close()

    async def __aenter__(self):
        return await self

    async def __aexit__(self, *error):
        self.steps.append(("closed", self.inside()))


def test_a_coroutine_that_is_a_context_manager_is_entered_and_awaited_within_the_block(block):
    decorate, inside = block
    request = decorate(lambda: Request(inside))

    async def enter():
        async with request() as response:
            response.steps.append(("body", inside()))
        return response.steps

    async def awaited():
        return (await request()).steps

    async def in_a_task():
        return (await asyncio.create_task(request())).steps

    assert asyncio.run(enter()) == [("connected", True), ("body", False), ("closed", True)]
    assert asyncio.run(awaited()) == [("connected", True)]
    assert asyncio.run(in_a_task()) == [("connected", True)]
    unused = request()
    unused.close()
    assert inspect.getcoroutinestate(unused.coroutine) == inspect.CORO_CLOSED
    assert not inside()


def test_an_iterator_that_is_a_context_manager_is_entered_and_iterated_within_the_block(
    block, tmp_path
):
    decorate, inside = block
    (tmp_path / "file").touch()
    with decorate(os.scandir)(tmp_path) as entries:
        assert [entry.name for entry in entries] == ["file"]

    class Rows(Batches):
        def __enter__(self):
            self.states = [self.inside()]
            return self

        def __exit__(self, *error):
            self.states.append(self.inside())

    with decorate(lambda: Rows(inside))() as rows:
        assert not inside()
        assert list(rows) == [True, True]
    assert rows.states == [True, True]


class Answer:
    def __await__(self):
        yield


@contextmanager
def opened():
    yield


@asynccontextmanager
async def opened_async():
    yield


REFUSED = {
    Answer: "await it in an `async def`, and decorate that",
    opened: "put the decorator below @contextmanager",
    opened_async: "put the decorator below @contextmanager",
}


@pytest.mark.parametrize("fn", REFUSED, ids=lambda fn: fn.__name__)
def test_what_runs_later_and_cannot_be_within_the_block_is_refused_by_name(block, fn):
    decorate, inside = block

    @decorate
    def make():
        return fn()

    with pytest.raises(ArgumentTypeError) as error:
        make()
    said = str(error.value)
    assert said.startswith("make() returned ")
    assert said.endswith(f"; {REFUSED[fn]}")
    assert not inside()
    assert f"which runs after its call and so outside {type(decorate).__name__}()" in said


def test_a_task_is_refused(block):
    decorate, _ = block

    async def start():
        decorate(asyncio.create_task)(asyncio.sleep(0))

    with pytest.raises(
        ArgumentTypeError, match=r"create_task\(\) returned .*; await it in an `async def`"
    ):
        asyncio.run(start())


def test_below_contextmanager_it_holds(block):
    decorate, inside = block
    seen = []

    @contextmanager
    @decorate
    def opened():
        seen.append(inside())
        yield
        seen.append(inside())

    with opened():
        assert not inside()
    assert seen == [True, True]


@pytest.mark.parametrize(
    "made",
    [
        *([1], (1,), {1: 2}, "text", range(2), io.StringIO("lines"), None, Device("cpu", 0)),
        *map(iter, ([1], (1,), {1}, {1: 2}, {1: 2}.items(), {1: 2}.values(), b"b", "text", "é")),
        *map(iter, (range(2), range(1 << 64, 1 << 65), bytearray(b"b"))),
    ],
    ids=lambda made: type(made).__name__,
)
def test_what_has_run_comes_back_as_it_is(block, made):
    decorate, _ = block
    assert decorate(lambda: made)() is made
    assert find_batch_size(lambda size: made)() is made


@pytest.mark.parametrize("what", [Batches, property(len), 3, None, (each for each in ())])
def test_what_is_not_a_function_cannot_be_decorated(block, what):
    decorate, _ = block
    with pytest.raises(
        ArgumentTypeError, match=r"\(\) cannot decorate .*; decorate a function, or write `with "
    ):
        decorate(what)


@pytest.mark.parametrize(
    "kind", ["coroutine, object", "generator, wraps", "async generator, lambda", "generator, map"]
)
def test_what_runs_later_has_no_batch_size(kind):
    later = is_within(kind, lambda fn: fn, bool)
    with pytest.raises(ArgumentTypeError, match=r"returned .*, whose errors come after the call"):
        find_batch_size(lambda size: later())()


def test_an_iterator_of_another_class_has_no_batch_size():
    with pytest.raises(ArgumentTypeError, match=r"returned .*Batches.*whose errors come after"):
        find_batch_size(lambda size: Batches(bool))()
