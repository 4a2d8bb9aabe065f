"""A bus between the host and a device: the time of a copy, by bandwidth and latency."""

from __future__ import annotations

import re
from typing import NamedTuple

from xdevice.errors import ArgumentError, ArgumentTypeError, shortened
from xdevice.units import parsed_size

_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_LATENCY = re.compile(r"(\d+(?:\.\d+)?)\s*([a-zµ]+)")
_HINT = "write a bandwidth and a time for each copy, with their units: 25GB/s,10us"


class Bus(NamedTuple):
    """The cost of a copy between the host and a device."""

    bandwidth: float  # bytes per second
    latency: float  # seconds per copy

    @classmethod
    def parsed(cls, text: object, option: str = "bus") -> Bus:
        """The bus that ``25GB/s,10us`` describes; ``option`` is for the error."""
        if not isinstance(text, str):
            raise ArgumentTypeError(f"{option}={shortened(text)} is not a string; {_HINT}")
        rate, _, duration = text.partition(",")
        bandwidth = _bytes_per_second(rate.strip())
        latency = _seconds(duration.strip())
        if not bandwidth or not latency:
            raise ArgumentError(f"{option}={text!r} is not a bus; {_HINT}")
        return cls(bandwidth, latency)

    def seconds(self, copies: int, nbytes: int) -> float:
        """The time of a number of copies, which copy ``nbytes`` in all."""
        return copies * self.latency + nbytes / self.bandwidth

    def __str__(self) -> str:
        return f"{self.bandwidth / 1e9:g} GB/s and {self.latency * 1e6:g} µs a copy"


def _bytes_per_second(rate: str) -> float:
    """The rate that ``25GB/s`` describes; 0 if it is malformed."""
    size, per_second, _ = rate.partition("/s")
    has_unit = not size.strip()[-1:].isdigit()
    if not per_second or not has_unit:
        return 0
    return parsed_size(size) or 0


def _seconds(duration: str) -> float:
    """The time that ``10us`` describes; 0 if it is malformed."""
    match = _LATENCY.fullmatch(duration)
    if match is None:
        return 0
    return float(match[1]) * _SECONDS.get(match[2], 0)


DEFAULT = Bus(25e9, 10e-6)
"""About PCI Express 4.0 x16 and one call of a driver. Reports say that it is assumed."""
