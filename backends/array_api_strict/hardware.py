"""The devices of array-api-strict, which are all in the host's memory."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache

import array_api_strict

from xdevice.backends.kit.places import ReplacedGpus
from xdevice.contract import Build, NativeDevice
from xdevice.device import Device

# each of its names, with the device that it names; older versions lack the last two
_NAMES = {
    "CPU_DEVICE": Device("cpu", 0),
    "device1": Device("device1", 0),
    "device2": Device("device2", 0),
    "no_float64": Device("no_float64", 0),
    "no_x64": Device("no_x64", 0),
}
GPUS = ("device1", "device2")
"""The names of the devices that can be virtual GPUs: those that hold every dtype."""

replaced_gpus = ReplacedGpus()


@cache
def _natives(gpus: int) -> dict[Device, NativeDevice]:
    """Each device with array-api-strict's object for it.

    The first devices of `GPUS` are virtual GPUs, as many as ``gpus``.
    """
    names = _NAMES | {name: Device("gpu", i) for i, name in enumerate(GPUS[:gpus])}
    natives: dict[Device, NativeDevice] = {}
    for name, device in names.items():
        try:
            natives[device] = array_api_strict.Device(name)
        except ValueError:  # this version does not have it
            continue
    return natives


@cache
def _devices(gpus: int) -> dict[NativeDevice, Device]:
    return {native: device for device, native in _natives(gpus).items()}


def build() -> Build:
    return {"version": array_api_strict.__version__, "compute": "cpu", "toolkit": None}


def kinds() -> tuple[str, ...]:
    return tuple(dict.fromkeys(device.kind for device in _natives(replaced_gpus.number)))


def count(kind: str) -> int:
    return sum(device.kind == kind for device in _natives(replaced_gpus.number))


def native(device: Device) -> NativeDevice:
    return _natives(replaced_gpus.number)[device]


def as_device(native: NativeDevice) -> Device:
    return _devices(replaced_gpus.number)[native]


def scope(device: Device) -> AbstractContextManager[None]:
    return nullcontext()  # array-api-strict has no current device


def synchronize(devices: Sequence[Device]) -> None:
    pass  # array-api-strict is synchronous


def properties(device: Device) -> dict[str, object]:
    if device.kind == "cpu":
        return {}
    return {"name": f"array-api-strict's {device.kind}, in the host's memory"}
