"""The bus of virtual GPUs: what its time is, and what waits for it. The clock is asked whether it went on enough."""

from time import perf_counter

import pytest

from xdevice import ArgumentError, Device
from xdevice.hardware.bus import Bus
from xdevice.virtual import bus as buses

SLOW = Bus(1e9, 0.01)  # 10 ms a copy
FIRST, SECOND = Device("gpu", 6), Device("gpu", 7)  # of no framework: no other test waits for them


def seconds(call):
    began = perf_counter()
    call()
    return perf_counter() - began


def carry(*devices, non_blocking=False):
    buses.carry(SLOW, 10**7, devices, non_blocking=non_blocking)


def test_a_copy_that_blocks_takes_its_time():
    assert seconds(lambda: carry(FIRST)) >= 0.02


def test_a_copy_that_does_not_block_is_waited_for_by_the_next_one_and_by_synchronize():
    began = perf_counter()
    for _ in range(3):
        carry(FIRST, non_blocking=True)
    buses.wait_until(buses.busy_until([SECOND]))  # whose bus is free
    buses.wait_until(buses.busy_until([FIRST]))
    assert perf_counter() - began >= 0.06
    carry(FIRST, non_blocking=True)
    assert seconds(lambda: carry(FIRST)) >= 0.02
    assert buses.busy_until([]) == 0


def test_a_copy_between_two_needs_both_buses():
    began = perf_counter()
    carry(FIRST, SECOND, non_blocking=True)
    carry(SECOND)
    assert perf_counter() - began >= 0.04


@pytest.mark.parametrize("text", ["", " ", "0"])
def test_there_is_no_bus_unless_it_is_asked_for(text, monkeypatch):
    monkeypatch.setenv(buses.ENV, text)
    assert buses.requested() is None


@pytest.mark.parametrize(
    "text", ["16GB", "16,10us", "16GB/s", "16GB/s,10", "fast", "-1GB/s,10us", "16GB/s,0us"]
)
def test_a_bus_that_cannot_be_read_is_an_error(text, monkeypatch):
    monkeypatch.setenv(buses.ENV, text)
    with pytest.raises(
        ArgumentError, match=f"XDEVICE_VIRTUAL_BUS='{text}' is not a bus; write a bandwidth"
    ):
        buses.requested()
