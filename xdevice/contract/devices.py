"""Devices: which exist, and the framework's own objects for them."""

from collections.abc import Mapping, Sequence
from typing import Protocol, TypedDict

from xdevice.contract.native import Block, NativeDevice
from xdevice.device import Device

__all__ = [
    "Build",
    "Hardware",
    "Properties",
]


class Build(TypedDict):
    """How a framework was built."""

    version: str
    compute: str  # the GPU toolkit of the build: "cuda", "rocm", "mps", "xpu"; else "cpu"
    toolkit: str | None  # that toolkit's version, "12.6"


class Properties(TypedDict):
    """What is known of a device; ``None`` is unknown. Memory in bytes."""

    name: str
    total_memory: int | None
    compute_capability: str | None  # "9.0"
    uuid: str | None  # joins the device with what the driver reports
    virtual: bool


class Hardware(Protocol):
    """The devices that exist, and the framework's own objects for them."""

    def build(self) -> Build: ...
    def kinds(self) -> tuple[str, ...]:
        """The kinds of devices that this framework supports, ``cpu`` first.

        Without ``cpu`` nothing falls back to the CPU.
        """

    def count(self, kind: str) -> int:
        """How many devices the framework can use now; 0 for an unknown kind.

        Creates no GPU context.
        """

    def native(self, device: Device, /) -> NativeDevice: ...
    def as_device(self, native: NativeDevice) -> Device:
        """The device of a native device.

        Without an index, it is the framework's current device.
        """

    def device_named(self, name: str) -> Device:
        """The device that this string names; ``Device(name)`` if the framework does not use it.

        For a framework with names of its own. The core reads a string that
        names ``cpu:0``, a GPU or a TPU itself, and passes on every other one
        that is spelled as a device is.
        """

    def scope(self, device: Device, /) -> Block:
        """A new native context, in which native factories use the device."""

    def synchronize(self, devices: Sequence[Device]) -> None:
        """Wait until all work queued on these devices is done."""

    def properties(self, device: Device) -> Mapping[str, object]:
        """The `Properties` that the framework knows.

        The core adds the others.
        """
