"""Taking time."""

import re
from typing import Any

import pytest

from xdevice import Benchmark, Timer, cpu, ones
from xdevice.framework import choosing
from xdevice.hardware import devices as the_hardware
from xdevice.testing.contract.promises import Promises, needs


class Timing(Promises):
    def test_a_timer_collects_times(self, backend: str) -> None:
        timer = Timer()
        first = timer.stop()
        timer.start()
        second = timer.stop()
        assert timer.times == [first, second]
        assert timer.sum() == first + second
        assert timer.avg() == timer.sum() / 2
        assert timer.cumsum() == [first, first + second]

    def test_an_unused_timer_says_zero(self, backend: str) -> None:
        timer = Timer()
        assert (timer.times, timer.sum(), timer.avg(), timer.cumsum()) == ([], 0, 0, [])

    @needs("creation.ones")
    def test_a_benchmark_prints_one_line(self, backend: str, capsys: Any) -> None:
        with Benchmark("product") as bench:
            _ = ones((2, 2)) @ ones((2, 2))
        assert re.fullmatch(r"product: \d+\.\d{4} sec\n", capsys.readouterr().out)
        assert bench.seconds is not None and bench.seconds > 0

    def test_a_failed_benchmark_prints_nothing(self, backend: str, capsys: Any) -> None:
        with pytest.raises(ZeroDivisionError), Benchmark():
            raise ZeroDivisionError
        assert capsys.readouterr().out == ""

    def test_timers_wait_at_both_ends(self, backend: str, monkeypatch: Any) -> None:
        waited: list[Any] = []
        hardware = choosing.backend().hardware
        real = hardware.synchronize

        def synchronize(devices: Any) -> None:
            waited.append(list(devices))
            real(devices)

        monkeypatch.setattr(hardware, "synchronize", synchronize)
        Timer().stop()
        assert waited == [the_hardware.devices(), the_hardware.devices()]

    @needs("cpu")
    def test_waiting_for_the_cpu_is_no_error(self, backend: str) -> None:
        the_hardware.synchronize()
        the_hardware.synchronize("cpu", cpu())
