"""Taking time: the promises under every framework."""

import re

import pytest

import xdevice


def test_a_timer_collects_times(backend):
    timer = xdevice.Timer()
    first = timer.stop()
    timer.start()
    second = timer.stop()
    assert timer.times == [first, second]
    assert timer.sum() == first + second
    assert timer.avg() == timer.sum() / 2
    assert timer.cumsum() == [first, first + second]


def test_a_timer_that_has_measured_nothing_says_zero(backend):
    timer = xdevice.Timer()
    assert (timer.times, timer.sum(), timer.avg(), timer.cumsum()) == ([], 0, 0, [])


def test_a_benchmark_prints_one_line(backend, capsys):
    with xdevice.Benchmark("product") as bench:
        xdevice.ones((2, 2)) @ xdevice.ones((2, 2))
    assert re.fullmatch(r"product: \d+\.\d{4} sec\n", capsys.readouterr().out)
    assert bench.seconds > 0


def test_a_benchmark_left_by_an_exception_prints_nothing(backend, capsys):
    with pytest.raises(ZeroDivisionError), xdevice.Benchmark():
        raise ZeroDivisionError
    assert capsys.readouterr().out == ""


def test_all_devices_are_waited_for_at_both_ends(backend, monkeypatch):
    waited = []
    hardware = xdevice.backend().hardware
    real = hardware.synchronize
    monkeypatch.setattr(hardware, "synchronize", lambda devices: (waited.append(list(devices)), real(devices)))
    xdevice.Timer().stop()
    assert waited == [xdevice.devices(), xdevice.devices()]


def test_waiting_for_the_cpu_is_no_error(backend):
    xdevice.synchronize()
    xdevice.synchronize("cpu", xdevice.cpu())
