"""The CPU, the only device of NumPy."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy

from xdevice.contract import Build
from xdevice.device import Device


def build() -> Build:
    return {"version": numpy.__version__, "compute": "cpu", "toolkit": None}


def kinds() -> tuple[str, ...]:
    return ("cpu",)


def count(kind: str) -> int:
    return int(kind == "cpu")


def native(device: Device) -> str:
    return device.kind  # NumPy names the CPU "cpu"


def as_device(native: object) -> Device:
    return Device("cpu", 0)


def scope(device: Device) -> AbstractContextManager[None]:
    return nullcontext()


def synchronize(devices: Sequence[Device]) -> None:
    pass  # NumPy is synchronous


def properties(device: Device) -> dict[str, object]:
    return {}
