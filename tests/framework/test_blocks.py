"""Blocks: left in another order than they were entered, and as decorators."""

import asyncio
import threading
from contextlib import contextmanager
from functools import partial
from itertools import permutations

import pytest

from xdevice import ArgumentTypeError, find_batch_size, strict, transfer_guard
from xdevice.framework import watched
from xdevice.framework.adapters import find
from xdevice.framework.choosing import without_last
from xdevice.transfers import guard


def test_blocks_left_out_of_order_leave_nothing_behind():
    blocks = ("a", "b", "c")
    for order in permutations(blocks):
        stack = blocks
        for i, block in enumerate(order):
            stack = without_last(stack, block)
            assert stack == tuple(b for b in blocks if b not in order[: i + 1])
    assert without_last(("a", "b", "a", "c"), "a") == ("a", "b", "c")
    assert without_last(blocks, "d") == blocks


BLOCKS = {
    "transfer_guard": (transfer_guard, lambda: bool(guard._open.get())),
    "strict": (strict, lambda: watched._mixing._blocks > 0),
}


@pytest.fixture(params=BLOCKS)
def block(request):
    """A block, and a function that says whether its caller is within it."""
    make, is_within = BLOCKS[request.param]
    return make(), is_within


async def waits(is_within):
    await asyncio.sleep(0)
    return is_within()


def generates(is_within):
    yield is_within()


async def generates_async(is_within):
    yield is_within()


def test_a_function_is_within_the_block_at_each_call(block):
    decorate, is_within = block

    class Asks:
        @decorate
        def method(self):
            """Its text."""
            return is_within()

    assert Asks().method()
    assert Asks.method.__doc__ == "Its text."
    assert decorate(partial(is_within))()
    assert decorate(lambda: [is_within()])() == [True]
    assert not is_within()


def test_an_async_function_is_within_the_block_until_its_end(block):
    decorate, is_within = block
    assert asyncio.run(decorate(waits)(is_within))
    assert asyncio.run(decorate(partial(waits, is_within))())
    assert not is_within()


def test_a_generator_function_is_refused(block):
    decorate, _ = block
    for fn in (generates, generates_async):
        with pytest.raises(
            ArgumentTypeError, match=r"is a generator; write `with \w+\(\):` inside"
        ):
            decorate(fn)


@pytest.mark.parametrize("fn", [waits, generates, generates_async, contextmanager(generates)])
def test_a_result_that_runs_after_the_call_is_refused(block, fn):
    decorate, is_within = block
    with pytest.raises(ArgumentTypeError, match=r"runs after the call .*; write `with \w+\(\):`"):
        decorate(lambda: fn(is_within))()
    with pytest.raises(ArgumentTypeError, match=r"runs after the call .*; pass a plain function"):
        find_batch_size(lambda size: fn(is_within))()


@pytest.mark.parametrize("what", [dict, staticmethod(len), property(len), 3, None])
def test_what_is_not_a_function_cannot_be_decorated(block, what):
    decorate, _ = block
    with pytest.raises(ArgumentTypeError, match=r"decorate a function, or write `with "):
        decorate(what)


def test_a_thread_waits_until_another_one_has_entered_what_watches_the_framework():
    numpy, is_entering, second_asks = find("numpy"), threading.Event(), threading.Event()
    steps = []

    @contextmanager
    def entered_slowly():
        is_entering.set()
        second_asks.wait(10)
        second.join(0.2)  # it waits, and ends only later
        steps.append("watched")
        yield

    def use():
        second_asks.set()
        blocks.watch(numpy)
        steps.append("used")

    blocks = watched.Watched(lambda owner: entered_slowly())
    second = threading.Thread(target=use)
    first = threading.Thread(target=lambda: blocks.open(None, numpy))
    first.start()
    assert is_entering.wait(10)
    second.start()
    first.join()
    second.join()
    blocks.close()
    watched._all.remove(blocks)
    assert steps == ["watched", "used"]
