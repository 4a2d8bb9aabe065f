"""Copies that take time: each virtual GPU has a bus with ``XDEVICE_VIRTUAL_BUS=16GB/s,10us``.

A bus makes one copy after the other. A blocking copy returns when it is complete. A copy that does
not block, or is made within a `BusStream`, leaves the bus busy; the next blocking copy, and
`synchronize`, wait for it.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Sequence
from contextvars import ContextVar, Token
from threading import Lock
from typing import NamedTuple

from xdevice.contract import Copy, Tensor
from xdevice.device import Device
from xdevice.framework.adapters import Backend
from xdevice.hardware.bus import Bus
from xdevice.hardware.virtual import is_virtual
from xdevice.virtual import children

ENV = "XDEVICE_VIRTUAL_BUS"

# seconds by which a system may wake a thread too late: the end of a wait is a loop
_LATE_WAKE_UP = 2e-4

_lock = Lock()
_busy_until: dict[Device, float] = {}  # by time.perf_counter
attached: dict[str, Bus] = {}  # of each framework whose virtual GPUs have one
_is_beside: ContextVar[bool] = ContextVar("xdevice.virtual.bus.beside", default=False)


def requested() -> Bus | None:
    """The bus that the environment asks for, if any: read when a framework gets its virtual GPUs.

    `ArgumentError` is raised if the variable does not describe a bus.
    """
    text = os.environ.get(ENV, "").strip()
    return None if text in ("", "0") else Bus.parsed(text, ENV)


def attach(owner: Backend, bus: Bus) -> None:
    """Let copies of the framework's virtual GPUs take time, until the process ends."""
    from xdevice.transfers import watching  # much code: only when it is needed

    is_first = not attached
    attached[owner] = bus

    def carry_copy(copy: Copy) -> None:
        ends = [end for end in {copy.source, copy.target} if is_virtual(owner, end)]
        if ends:
            carry(bus, copy.nbytes, ends, non_blocking=copy.non_blocking)

    watching.follow(owner, carry_copy)
    if is_first and not children.has_warned("BUS"):
        print(
            f"xdevice: virtual GPUs have a bus of {bus}, which their copies wait for",
            file=sys.stderr,
        )


def carry(bus: Bus, nbytes: int, devices: Iterable[Device], *, non_blocking: bool) -> None:
    """Spend the time of a copy from or to these devices, or let their buses be busy for it."""
    ends = list(devices)
    with _lock:
        begin = max(time.perf_counter(), *(_busy_until.get(device, 0.0) for device in ends))
        end = begin + bus.seconds(1, nbytes)
        _busy_until.update(dict.fromkeys(ends, end))
    if not (non_blocking or _is_beside.get()):
        wait_until(end)


def busy_until(devices: Iterable[Device]) -> float:
    """The time by ``time.perf_counter`` at which all copies of the devices will be complete."""
    return max((_busy_until.get(device, 0.0) for device in devices), default=0.0)


def busy_until_of(framework: str, device: Device) -> float:
    """The same for one device, if the framework's virtual GPUs have a bus; else 0."""
    return busy_until([device]) if framework in attached else 0.0


def wait_for(devices: Iterable[Device]) -> None:
    """Wait until all copies of the devices are complete."""
    wait_until(busy_until(devices))


def wait_until(end: float) -> None:
    remaining = end - time.perf_counter()
    if remaining > _LATE_WAKE_UP:
        time.sleep(remaining - _LATE_WAKE_UP)
    while time.perf_counter() < end:
        pass


class BusStream:
    """A stream of copies to one virtual GPU.

    A copy within it does not wait for the bus. The event of the stream does.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._tokens: list[Token[bool]] = []

    def __enter__(self) -> BusStream:
        self._tokens.append(_is_beside.set(True))
        return self

    def __exit__(self, *error: object) -> None:
        _is_beside.reset(self._tokens.pop())

    def pinned(self, tensor: Tensor) -> Tensor:
        return tensor

    def record(self, tensors: Sequence[Tensor]) -> BusEvent:
        return BusEvent(busy_until([self._device]))


class BusEvent(NamedTuple):
    """The time at which all earlier copies on the bus will be complete."""

    end: float

    def synchronize(self) -> None:
        wait_until(self.end)

    def wait(self) -> None:
        # operations run in this thread, and begin when the copies are complete
        wait_until(self.end)
