"""Memory statistics, running out of memory, and timing."""

import gc
import os
import re
import subprocess
import sys
import weakref
from collections.abc import AsyncGenerator, Generator
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
from xdevice.hardware.questions import synchronize
from xdevice.tensors.exchange import to_numpy
from xdevice.testing import Tensor
from xdevice.testing.contract.promises import FIRST, SECOND, Promises, home, needs, raised

HUGE = """
import sys
from xdevice import is_out_of_memory, ones, to_numpy, using
with using(sys.argv[1]):
    for device in sys.argv[2:]:
        try:
            to_numpy(ones((2**22, 2**24), dtype="float32", device=device))
        except Exception as error:
            print(device, "out of memory" if is_out_of_memory(error) else repr(error))
"""
"""A program that allocates 256 TB on each device, which may end the process."""


class Group(Exception):  # noqa: N818
    """An `ExceptionGroup`, which Python 3.10 does not have."""

    def __init__(self, *exceptions: Exception) -> None:
        self.exceptions = exceptions


def fit(size: int, limit: int) -> int:
    """The size if it is within the limit; otherwise `MemoryError`."""
    if size > limit:
        raise MemoryError
    return size


CAUSED_BY_MEMORY = RuntimeError("training failed")
CAUSED_BY_MEMORY.__cause__ = MemoryError()
WHILE_HANDLING_MEMORY = KeyError("unrelated")
WHILE_HANDLING_MEMORY.__context__ = MemoryError()
OUT_OF_MEMORY = [
    MemoryError(),
    CAUSED_BY_MEMORY,
    Group(ValueError(), Group(CAUSED_BY_MEMORY)),
]
OTHER_ERRORS = [
    ValueError("out of range"),
    RuntimeError("out of cheese"),
    WHILE_HANDLING_MEMORY,
    Group(ValueError()),
]
IMPOSSIBLE_SIZES = [
    {"start": 0},
    {"start": 1.5},
    {"start": True},
    {"start": 2, "minimum": 4},
    {"minimum": -1},
]


class Memory(Promises):
    @needs("memory.memory_stats")
    def test_memory_figures_are_bytes_or_none(self, backend: str) -> None:
        for device in devices():
            stats: dict[str, Any] = {**memory_stats(device)}
            assert set(stats) - {"holders"} == {"total", "free", "allocated", "reserved", "peak"}
            assert stats["total"] is None or stats["total"] > 2**20
            assert stats["free"] is None or 0 < stats["free"] <= stats["total"]
            if device.kind == "cpu":
                assert stats["total"] is not None

    @needs("creation.ones", "exchange.to_numpy", "memory.empty_cache", "memory.memory_stats")
    def test_memory_is_counted_for_each_device(self, backend: str, two_gpus: object) -> None:
        gc.collect()
        baseline = {device: memory_stats(device).get("allocated") for device in (FIRST, SECOND)}
        x = ones((2**20,), dtype="float32", device=SECOND)
        synchronize()
        for device, growth in ((FIRST, 0), (SECOND, 4 * 2**20)):
            allocated, previous = memory_stats(device).get("allocated"), baseline[device]
            if allocated is not None and previous is not None:
                assert abs(allocated - previous - growth) < 2**20
        empty_cache(SECOND)
        assert to_numpy(x).sum() == 2**20

    @needs("exchange.to_numpy", "memory.empty_cache")
    def test_empty_cache_keeps_tensors(self, backend: str, x: Tensor) -> None:
        empty_cache()
        empty_cache(home())
        assert to_numpy(x).sum() == 6

    @pytest.mark.parametrize("error", [*OUT_OF_MEMORY, *OTHER_ERRORS], ids=repr)
    def test_out_of_memory_errors_are_recognized(self, backend: str, error: Exception) -> None:
        assert is_out_of_memory(error) is (error in OUT_OF_MEMORY)

    def test_find_batch_size_refuses_coroutines(self, backend: str) -> None:
        async def coroutine(size: int) -> None: ...

        def generator(size: int) -> Generator[int, None, None]:
            yield size

        async def async_generator(size: int) -> AsyncGenerator[int, None]:
            yield size

        refuse = raised(ArgumentTypeError, "pass a plain function that runs it to the end")
        for fn in (coroutine, generator, async_generator):
            refuse(find_batch_size(fn))

    def test_find_batch_size_needs_bound_methods_and_integers(self, backend: str) -> None:
        class Trainer:
            def train(self, size: int, limit: int) -> int:
                return fit(size, limit)

        unbound: Any = Trainer.train
        assert find_batch_size(Trainer().train, start=8)(3) == 2
        message = r"train is a method.*find_batch_size\(obj.method\)"
        raised(ArgumentTypeError, message)(find_batch_size, unbound)
        size: Any = "64"  # of a decorator, too, before there is a function
        raised(ArgumentTypeError, "start='64' is not a batch size")(find_batch_size, start=size)

    @needs("creation.ones", "exchange.to_numpy")
    def test_a_huge_allocation_is_out_of_memory(self, backend: str) -> None:
        places = [str(device) for device in devices()]
        command = [sys.executable, "-c", HUGE, backend, *places]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        process = subprocess.run(
            command, capture_output=True, text=True, env=env, timeout=300, check=False
        )
        assert process.returncode == 0, process.stderr.strip()[-500:]
        found = process.stdout.splitlines()[-len(places) :]
        assert found == [f"{place} out of memory" for place in places]

    def test_the_batch_size_halves_until_it_fits(self, backend: str) -> None:
        sizes: list[int] = []

        @find_batch_size(start=100)
        def train(size: int, limit: int, *, bonus: int = 0) -> int:
            sizes.append(size)
            return fit(size, limit) + bonus

        assert train(30) == 25
        assert sizes == [100, 50, 25]
        assert train(100, bonus=1) == 101
        assert train.__name__ == "train"

    def test_a_failed_try_frees_its_memory(self, backend: str) -> None:
        blocks: list[weakref.ref[Any]] = []

        def train(size: int) -> int:
            gc.disable()  # so that a reference cycle would keep a block alive
            assert all(reference() is None for reference in blocks)
            block = np.empty(size)
            blocks.append(weakref.ref(block))
            return fit(size, 2)

        try:
            assert find_batch_size(train, start=8)() == 2
        finally:
            gc.enable()

    def test_other_errors_pass_through(self, backend: str) -> None:
        def fail(size: int, error: Exception) -> None:
            raise error

        raised(KeyError, "unrelated")(find_batch_size(fail), KeyError("unrelated"))
        search = find_batch_size(fail, start=8, minimum=3)
        error = raised(OutOfMemoryError, "batch size of 3")(search, MemoryError())
        assert isinstance(error, MemoryError)
        assert isinstance(error.__cause__, MemoryError)

    @pytest.mark.parametrize("sizes", IMPOSSIBLE_SIZES, ids=str)
    def test_impossible_batch_sizes_are_errors(self, sizes: Any) -> None:
        raised(ArgumentError)(find_batch_size, lambda size: size, **sizes)


class Timing(Promises):
    def test_a_timer_collects_times(self, backend: str) -> None:
        timer = Timer()
        first = timer.stop()
        timer.start()
        second = timer.stop()
        assert timer.times == [first, second]
        assert timer.cumsum() == [first, first + second]
        assert timer.sum() == first + second
        assert timer.avg() == (first + second) / 2

    def test_an_unused_timer_reads_zero(self, backend: str) -> None:
        timer = Timer()
        assert timer.times == timer.cumsum() == []
        assert timer.sum() == timer.avg() == 0

    @needs("creation.ones")
    def test_a_benchmark_prints_one_line(
        self, backend: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with Benchmark("product") as bench:
            _ = ones((2, 2)) @ ones((2, 2))
        assert re.fullmatch(r"product: \d+\.\d{4} sec\n", capsys.readouterr().out)
        assert bench.seconds is not None
        assert bench.seconds > 0

    def test_a_failed_benchmark_prints_nothing(
        self, backend: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(ZeroDivisionError), Benchmark():
            raise ZeroDivisionError
        assert capsys.readouterr().out == ""

    def test_timers_wait_at_both_ends(self, backend: str) -> None:
        hardware = choosing.backend().hardware
        with patch.object(hardware, "synchronize", wraps=hardware.synchronize) as synchronize:
            Timer().stop()
        waited_for = [list(call.args[0]) for call in synchronize.call_args_list]
        assert waited_for == [devices(), devices()]

    @needs("cpu")
    def test_synchronizing_the_cpu_is_allowed(self, backend: str) -> None:
        synchronize()
        synchronize("cpu", cpu())
