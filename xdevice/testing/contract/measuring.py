"""Measuring memory, running out of it, and taking time."""

import functools
import gc
import os
import re
import subprocess
import sys
import weakref
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from xdevice import (
    Benchmark,
    Timer,
    cpu,
    devices,
    empty_cache,
    find_batch_size,
    is_out_of_memory,
    memory_stats,
    ones,
)
from xdevice.errors import ArgumentError, ArgumentTypeError, OutOfMemoryError
from xdevice.framework import choosing
from xdevice.hardware.devices import synchronize
from xdevice.tensors.exchange import to_numpy
from xdevice.testing.contract.promises import FIRST, SECOND, Promises, home, needs, raised

HUGE = """
import sys
from xdevice import is_out_of_memory, ones, to_numpy, using
with using(sys.argv[1]):
    try:
        to_numpy(ones((2**22, 2**24), dtype="float32", device=sys.argv[2]))
    except Exception as error:
        print("out of memory" if is_out_of_memory(error) else repr(error))
"""
"""A program that asks for 256 TB on a device: some frameworks end the process."""


class Group(Exception):  # noqa: N818
    """An `ExceptionGroup`, which Python 3.10 has not."""

    def __init__(self, *exceptions: Exception) -> None:
        self.exceptions = exceptions


def fit(size: int, limit: int) -> int:
    """The size, if memory is enough."""
    if size > limit:
        raise MemoryError
    return size


CAUSED, HANDLED = RuntimeError("training failed"), KeyError("mine")
CAUSED.__cause__ = HANDLED.__context__ = MemoryError()
OUT_OF_MEMORY = [MemoryError(), CAUSED, Group(ValueError(), Group(CAUSED))]
IMPOSSIBLE = [
    {"start": 0},
    {"start": 1.5},
    {"start": True},
    {"start": 2, "minimum": 4},
    {"minimum": -1},
]
OTHERS = [ValueError("out of range"), RuntimeError("out of cheese"), HANDLED, Group(ValueError())]


class Memory(Promises):
    @needs("memory.memory_stats")
    def test_memory_figures_are_bytes_or_none(self, backend: str) -> None:
        for device in devices():
            stats: Any = memory_stats(device)
            assert set(stats) - {"holders"} == {"total", "free", "allocated", "reserved", "peak"}
            assert stats["total"] is None or stats["total"] > 2**20
            assert stats["free"] is None or 0 < stats["free"] <= stats["total"]
            assert device.kind != "cpu" or stats["total"] is not None

    @needs("creation.ones", "exchange.to_numpy", "memory.empty_cache", "memory.memory_stats")
    def test_memory_is_told_of_each_device(self, backend: str, two_gpus: Any) -> None:
        gc.collect()
        before: Any = {device: memory_stats(device).get("allocated") for device in (FIRST, SECOND)}
        x = ones((2**20,), dtype="float32", device=SECOND)
        synchronize()
        for device, taken in ((FIRST, 0), (SECOND, 4 * 2**20)):
            now, then = memory_stats(device).get("allocated"), before[device]
            assert now is None or then is None or abs(now - then - taken) < 2**20
        empty_cache(SECOND)
        assert to_numpy(x).sum() == 2**20

    @needs("exchange.to_numpy", "memory.empty_cache")
    def test_empty_cache_keeps_tensors(self, backend: str, x: Any) -> None:
        empty_cache()
        empty_cache(home())
        assert to_numpy(x).sum() == 6

    @pytest.mark.parametrize("error", [*OUT_OF_MEMORY, *OTHERS], ids=repr)
    def test_out_of_memory_is_told_from_others(self, backend: str, error: Exception) -> None:
        assert is_out_of_memory(error) is (error in OUT_OF_MEMORY)

    def test_find_batch_size_refuses_coroutines(self, backend: str) -> None:
        async def coroutine(size: int) -> None: ...

        def generator(size: int) -> Any:
            yield size

        async def both(size: int) -> Any:
            yield size

        refuses = raised(ArgumentTypeError, "pass a plain function that runs it to the end")
        for fn in (coroutine, generator, both, functools.partial(coroutine)):
            refuses(find_batch_size, fn)
            hidden: Any = (
                lambda size, fn=fn: fn(size),
                type("Called", (), {"__call__": staticmethod(fn)})(),
            )
            refuses(find_batch_size(hidden[0]))
            refuses(find_batch_size(hidden[1]))

    def test_find_batch_size_needs_bound_methods(self, backend: str) -> None:
        class Trainer:
            def train(self, size: int, limit: int) -> int:
                return fit(size, limit)

        unbound: Any = Trainer.train
        assert find_batch_size(Trainer().train, start=8)(3) == 2
        raised(ArgumentTypeError, r"train is a method.*find_batch_size\(obj.method\)")(
            find_batch_size, unbound
        )

    @needs("creation.ones", "exchange.to_numpy")
    def test_a_huge_allocation_is_out_of_memory(self, backend: str, place: Any) -> None:
        command = [sys.executable, "-c", HUGE, backend, str(place)]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        done = subprocess.run(
            command, capture_output=True, text=True, env=env, timeout=300, check=False
        )
        ended = done.returncode, done.stdout.strip().rpartition("\n")[2]
        assert ended == (0, "out of memory"), done.stderr.strip()[-500:]

    def test_the_batch_size_halves_until_it_fits(self, backend: str) -> None:
        tried: list[int] = []

        @find_batch_size(start=100)
        def train(size: int, limit: int, *, bonus: int = 0) -> int:
            tried.append(size)
            return fit(size, limit) + bonus

        assert (train(30), tried, train.__name__) == (25, [100, 50, 25], "train")
        assert train(100, bonus=1) == 101

    def test_a_failed_try_frees_its_memory(self, backend: str) -> None:
        held: list[Any] = []

        def train(size: int) -> int:
            gc.disable()
            assert all(ref() is None for ref in held)
            block = np.empty(size)
            held.append(weakref.ref(block))
            return fit(size, 2)

        try:
            assert find_batch_size(train, start=8)() == 2
        finally:
            gc.enable()

    def test_other_errors_pass_through(self, backend: str) -> None:
        def raises(size: int, error: Exception) -> None:
            raise error

        raised(KeyError, "mine")(lambda: find_batch_size(raises)(KeyError("mine")))
        with pytest.raises(OutOfMemoryError, match="batch size of 3") as error:
            find_batch_size(raises, start=8, minimum=3)(MemoryError("no"))
        assert isinstance(error.value, MemoryError)
        assert isinstance(error.value.__cause__, MemoryError)

    @pytest.mark.parametrize("sizes", IMPOSSIBLE, ids=str)
    def test_impossible_batch_sizes_are_errors(self, sizes: Any) -> None:
        raised(ArgumentError)(find_batch_size, lambda size: size, **sizes)


class Timing(Promises):
    def test_a_timer_collects_times(self, backend: str) -> None:
        timer = Timer()
        first = timer.stop()
        timer.start()
        both = [first, timer.stop()]
        assert (timer.times, timer.cumsum()) == (both, [first, sum(both)])
        assert (timer.sum(), timer.avg()) == (sum(both), sum(both) / 2)

    def test_an_unused_timer_says_zero(self, backend: str) -> None:
        timer = Timer()
        assert (timer.times, timer.sum(), timer.avg(), timer.cumsum()) == ([], 0, 0, [])

    @needs("creation.ones")
    def test_a_benchmark_prints_one_line(self, backend: str, capsys: Any) -> None:
        with Benchmark("product") as bench:
            _ = ones((2, 2)) @ ones((2, 2))
        assert re.fullmatch(r"product: \d+\.\d{4} sec\n", capsys.readouterr().out)
        assert bench.seconds is not None
        assert bench.seconds > 0

    def test_a_failed_benchmark_prints_nothing(self, backend: str, capsys: Any) -> None:
        with pytest.raises(ZeroDivisionError), Benchmark():
            raise ZeroDivisionError
        assert capsys.readouterr().out == ""

    def test_timers_wait_at_both_ends(self, backend: str) -> None:
        hardware = choosing.backend().hardware
        with patch.object(hardware, "synchronize", wraps=hardware.synchronize) as waiting:
            Timer().stop()
        assert [list(call.args[0]) for call in waiting.call_args_list] == [devices(), devices()]

    @needs("cpu")
    def test_waiting_for_the_cpu_is_no_error(self, backend: str) -> None:
        synchronize()
        synchronize("cpu", cpu())
