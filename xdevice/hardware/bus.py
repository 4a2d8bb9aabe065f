"""A stated bus: how long a copy would take on it. ``25GB/s,10us`` is a bandwidth, and a time for each copy.

``XDEVICE_VIRTUAL_BUS=16GB/s,10us`` gives each virtual GPU a bus of its own, so that copies cost what they cost on a
real one. It carries one copy after the other. A copy that blocks returns when it has been carried. One that does not,
or is made `beside` computing, leaves the bus busy; the next that blocks, and `synchronize`, wait for it.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from typing import NamedTuple

from xdevice.device import Device
from xdevice.errors import ArgumentError, ArgumentTypeError, shortened
from xdevice.kit.units import parsed_size

_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_LATENCY = re.compile(r"(\d+(?:\.\d+)?)\s*([a-zµ]+)")
_WRITE = "write a bandwidth and a time for each copy, with their units: 25GB/s,10us"


class Bus(NamedTuple):
    """What a copy between the host and a device costs: so many bytes a second, and so many seconds for itself."""

    bandwidth: float
    latency: float

    @classmethod
    def parsed(cls, text: object, what: str = "bus") -> Bus:
        """The bus that ``25GB/s,10us`` describes; ``what`` is for the error."""
        if not isinstance(text, str):
            raise ArgumentTypeError(f"{what}={shortened(text)} is not a string; {_WRITE}")
        rate, _, wait = text.partition(",")
        latency = _LATENCY.fullmatch(wait.strip())
        seconds = float(latency[1]) * _SECONDS.get(latency[2], 0) if latency else 0
        number, per, _ = rate.strip().partition("/s")
        bandwidth = parsed_size(number) if per and not number.strip()[-1:].isdigit() else 0
        if not bandwidth or not seconds:
            raise ArgumentError(f"{what}={text!r} is no bus; {_WRITE}")
        return cls(bandwidth, seconds)

    def seconds(self, copies: int, nbytes: int) -> float:
        """The time of so many copies of so many bytes in all."""
        return copies * self.latency + nbytes / self.bandwidth

    def __str__(self) -> str:
        return f"{self.bandwidth / 1e9:g} GB/s and {self.latency * 1e6:g} µs a copy"


DEFAULT = Bus(25e9, 10e-6)
"""A stated one, of the size of PCI Express 4.0 x16 and of a driver's call: said wherever it is used."""

ENV = "XDEVICE_VIRTUAL_BUS"

_SLACK = 2e-4  # seconds by which a system may wake a thread too late: these are spent looking at the clock

_lock = Lock()
_busy: dict[Device, float] = {}  # until when
_is_beside: ContextVar[bool] = ContextVar("xdevice.bus.beside", default=False)


def requested() -> Bus | None:
    """The bus that the environment asks for, if it does; `ArgumentError` if the variable does not describe one."""
    text = os.environ.get(ENV, "").strip()
    return None if text in ("", "0") else Bus.parsed(text, ENV)


def carry(bus: Bus, nbytes: int, devices: Iterable[Device], *, non_blocking: bool) -> None:
    """Spend the time of a copy from or to these devices, or let their buses be busy for it."""
    ends = list(devices)
    with _lock:
        begin = max(time.perf_counter(), *(_busy.get(device, 0.0) for device in ends))
        end = begin + bus.seconds(1, nbytes)
        _busy.update(dict.fromkeys(ends, end))
    if not (non_blocking or _is_beside.get()):
        wait_until(end)


@contextmanager
def beside() -> Generator[None]:
    """Let no copy in the block wait for its bus: who uses what it brings waits `until` then."""
    token = _is_beside.set(True)
    try:
        yield
    finally:
        _is_beside.reset(token)


def until(devices: Iterable[Device]) -> float:
    """When the devices' buses will have carried all that they were given."""
    return max((_busy.get(device, 0.0) for device in devices), default=0.0)


def wait_until(end: float) -> None:
    left = end - time.perf_counter()
    if left > _SLACK:
        time.sleep(left - _SLACK)
    while time.perf_counter() < end:
        pass


class Carried(NamedTuple):
    """What was on its way at a time: a `contract.Event`."""

    end: float

    def synchronize(self) -> None:
        wait_until(self.end)

    def wait(self) -> None:
        wait_until(self.end)  # what computes here would begin when it is carried
