"""Taking time."""

from __future__ import annotations

import re
from typing import Any

import pytest

import xdevice
from xdevice.testing.contract.promises import Promises


class Timing(Promises):
    """Taking time."""

    def test_a_timer_collects_times(self, backend: str) -> None:
        timer = xdevice.Timer()
        first = timer.stop()
        timer.start()
        second = timer.stop()
        assert timer.times == [first, second]
        assert timer.sum() == first + second
        assert timer.avg() == timer.sum() / 2
        assert timer.cumsum() == [first, first + second]

    def test_a_timer_that_has_measured_nothing_says_zero(self, backend: str) -> None:
        timer = xdevice.Timer()
        assert (timer.times, timer.sum(), timer.avg(), timer.cumsum()) == ([], 0, 0, [])

    def test_a_benchmark_prints_one_line(self, backend: str, capsys: Any) -> None:
        with xdevice.Benchmark("product") as bench:
            _ = xdevice.ones((2, 2)) @ xdevice.ones((2, 2))
        assert re.fullmatch(r"product: \d+\.\d{4} sec\n", capsys.readouterr().out)
        assert bench.seconds is not None and bench.seconds > 0

    def test_a_benchmark_left_by_an_exception_prints_nothing(self, backend: str, capsys: Any) -> None:
        with pytest.raises(ZeroDivisionError), xdevice.Benchmark():
            raise ZeroDivisionError
        assert capsys.readouterr().out == ""

    def test_all_devices_are_waited_for_at_both_ends(self, backend: str, monkeypatch: Any) -> None:
        waited: list[Any] = []
        hardware = xdevice.backend().hardware
        real = hardware.synchronize

        def synchronize(devices: Any) -> None:
            waited.append(list(devices))
            real(devices)

        monkeypatch.setattr(hardware, "synchronize", synchronize)
        xdevice.Timer().stop()
        assert waited == [xdevice.devices(), xdevice.devices()]

    def test_waiting_for_the_cpu_is_no_error(self, backend: str) -> None:
        xdevice.synchronize()
        xdevice.synchronize("cpu", xdevice.cpu())
