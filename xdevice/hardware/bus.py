"""A bus between the host and a device: how long a copy takes on it, by its bandwidth and its latency."""

from __future__ import annotations

import re
from typing import NamedTuple

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
