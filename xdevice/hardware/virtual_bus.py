"""A bus for virtual GPUs, so that copies cost what they cost on a real one: ``XDEVICE_VIRTUAL_BUS=16GB/s,10us``.

Each virtual GPU has a bus of its own, which carries one copy after the other. A copy that blocks returns when it has
been carried. One that does not leaves the bus busy; the next that blocks, and `synchronize`, wait for it.
"""

import os
import time
from collections.abc import Iterable
from threading import Lock

from xdevice.device import Device
from xdevice.hardware.bus import Bus

ENV = "XDEVICE_VIRTUAL_BUS"

_SLACK = 2e-4  # seconds by which a system may wake a thread too late: these are spent looking at the clock

_lock = Lock()
_busy: dict[Device, float] = {}  # until when


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
    if not non_blocking:
        wait_until(end)


def until(devices: Iterable[Device]) -> float:
    """When the devices' buses will have carried all that they were given."""
    return max((_busy.get(device, 0.0) for device in devices), default=0.0)


def wait(devices: Iterable[Device]) -> None:
    wait_until(until(devices))


def wait_until(end: float) -> None:
    left = end - time.perf_counter()
    if left > _SLACK:
        time.sleep(left - _SLACK)
    while time.perf_counter() < end:
        pass
