"""Devices: what there is, its memory, and operations on several of them."""

# the body of a Protocol's method is its docstring
# pyright: reportReturnType=false

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypedDict

from xdevice.device import Device

__all__ = [
    "Allocation",
    "Build",
    "Hardware",
    "Memory",
    "MemoryStats",
    "Mixing",
    "Preparation",
    "Properties",
    "Races",
    "Virtual",
]


class Build(TypedDict):
    """How a framework was built."""

    version: str
    compute: str  # the GPU toolkit that it was built for: "cuda", "rocm", "mps", "xpu"; else "cpu"
    toolkit: str | None  # that toolkit's version, "12.6"


class Properties(TypedDict):
    """What is known of a device; ``None`` is unknown. Memory in bytes."""

    name: str
    total_memory: int | None
    compute_capability: str | None  # "9.0"
    uuid: str | None  # joins the device with what the driver reports
    virtual: bool


class MemoryStats(TypedDict, total=False):
    """Bytes, each ``None`` where it is not known."""

    total: int | None  # the device's memory
    free: int | None  # what any process could still take
    allocated: int | None  # in live tensors of this process and framework
    reserved: int | None  # taken from the device by the framework's allocator
    peak: int | None  # the most that was ever allocated
    holders: (
        dict[str, int | None] | None
    )  # of the device, by process: "this process", "process 4711 (python)"


class Preparation(Protocol):
    """Marks a capability that is opened before a framework is used, or to watch it.

    Opening it does not count as use.
    """


class Hardware(Protocol):
    """What there is, and the framework's own objects for it."""

    def build(self) -> Build: ...
    def kinds(self) -> tuple[str, ...]:
        """The kinds that this framework can have at all, ``cpu`` first; without ``cpu`` nothing falls back to it."""

    def count(self, kind: str) -> int:
        """How many the framework can use now; 0 for an unknown kind. Creates no GPU context."""

    def native(self, device: Device) -> Any: ...
    def as_device(self, native: Any) -> Device:
        """The device behind a native one; an index left open is the framework's current device.

        Where `Placement.role` says that ``str`` is a device, strings come here too, except those that name a CPU, GPU
        or TPU in any framework's spelling: ``Device(native)`` for a string of another framework.
        """

    def scope(self, device: Device) -> AbstractContextManager[Any]:
        """A fresh native context in which the framework's own factories use the device."""

    def synchronize(self, devices: Sequence[Device]) -> None:
        """Wait until all work queued on these devices is done."""

    def properties(self, device: Device) -> Mapping[str, object]:
        """What the framework knows of `Properties`; the core fills in the rest, and the name of a processor."""


class Memory(Protocol):
    """What the framework's allocator knows."""

    def memory_stats(self, device: Device) -> MemoryStats:
        """Only what the framework knows; the core fills in the rest, and the host's own figures."""

    def empty_cache(self, device: Device | None) -> None: ...
    def is_out_of_memory(self, error: BaseException) -> bool:
        """Whether this one error is the framework's word for no memory left."""


class Allocation(Preparation, Protocol):
    """How much of the GPUs' memory the framework takes."""

    def share(self, fraction: float | None) -> dict[str, str]:
        """Take memory when it is needed, and at most that fraction of each GPU's; the settings made, with their values.

        Raises `TooLateError` if the framework has taken its memory already.
        """


class Virtual(Preparation, Protocol):
    """GPUs that are not there: devices of their own, backed by host memory."""

    def enable(self, n: int, force: bool, stand_in: bool) -> None:
        """Let ``gpu:0`` … ``gpu:n-1`` be virtual GPUs in this process, for this framework.

        With ``stand_in`` they also answer to the framework's own names for its GPUs, its questions about them
        included, and GPU 0 is the default device where a real one would be. Called at most once with success.
        Raises `VirtualDeviceError` if it is too late for that, or if real GPUs are there and ``force``, which hides
        them, is not given; `NotSupportedError` if this system cannot.
        """

    def recipe(self) -> Any:
        """What virtual GPUs are compiled from, a `xdevice.virtual.plugins.Recipe`; ``None`` where they need no plug-in.

        Raises `NotSupportedError` if this version of the framework, or this system, cannot have them.
        """


class Races(Preparation, Protocol):
    """Streams that programs order."""

    def find_races(self) -> None:
        """Let two that use one tensor, the later without waiting for the earlier, be an error on virtual GPUs."""


class Mixing(Preparation, Protocol):
    """Operations on tensors of several devices."""

    def forbid(self) -> AbstractContextManager[Any]:
        """A context in which such an operation raises `MixedDeviceError`, if it can be in every thread."""
