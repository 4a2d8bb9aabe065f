"""Devices: what there is, its memory, copies between devices, and jobs that use the devices of several processes."""

# the body of a Protocol's method is its docstring
# pyright: reportReturnType=false

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, TypedDict

from xdevice.device import Device

__all__ = [
    "Allocation",
    "Arrivals",
    "Build",
    "Copy",
    "Engine",
    "Event",
    "Hardware",
    "Job",
    "Kind",
    "Memory",
]
__all__ += [
    "MemoryStats",
    "Mixing",
    "Preparation",
    "Properties",
    "Races",
    "Stream",
    "Streams",
    "Transfers",
    "Virtual",
    "Watcher",
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
    """Marks a capability that is opened before a framework is used, or to watch it: opening it is no use."""


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
        """What virtual GPUs are compiled from, a `kit.plugins.Recipe`; ``None`` where they need no plug-in.

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


Kind = Literal["copy", "number", "size", "index", "operand", "gradient", "print"]
"""What makes the copy. Only ``copy`` is explicit: the program asks for it, by ``.to``, feeding or loading.

``number``: Python reads values (``float(x)``, ``if x``, ``.item()``, ``tolist``, ``np.asarray``). ``size``: the
result's shape, or a yes or no, depends on values, so the CPU waits (a mask as an index, ``nonzero``). ``index``: an
index, or a value to write, from the host, sent each time. ``operand``: copied by the framework because another operand
is elsewhere. ``gradient``: in the backward pass. ``print``: a tensor is shown.
"""


class Copy(NamedTuple):
    """One copy between the host and a device, or between two devices. The host is ``Device('cpu:0')``."""

    kind: Kind
    operation: str  # the framework's name of what makes it: "aten::copy_", "item"
    nbytes: int
    source: Device
    target: Device
    non_blocking: bool = False  # the program was told not to wait
    pinned: bool = False  # the host's memory is page-locked
    mark: int = 0  # of what the host sends, by `kit.marks`, where known: the same values sent twice are seen by it


class Watcher(Protocol):
    """What an adapter tells of copies."""

    def see(self, copy: Copy, of: Any = None) -> None:
        """A copy is about to be made by this thread, or by one that works for the place ``of``, which `here` gave.

        Raises `TransferError` where the copy is forbidden: then it must not be made.
        """

    def here(self, kind: Kind = "gradient") -> Any:
        """This thread's place in the program and its levels, for a thread of the framework that will work for it.

        A ``copy`` by that thread, outside of all lines of the program, is of this kind.
        """

    def stepped(self, optimizer: object) -> None:
        """An optimizer has made a step."""


class Transfers(Preparation, Protocol):
    """Seeing copies, and hiding them behind computing."""

    def watch(self, watcher: Watcher) -> AbstractContextManager[Any]:
        """A context, for the whole process, in which the watcher is told of each copy and each optimizer's step.

        Leaving it leaves no trace: watching costs nothing while it is off.
        """

    def unseen(self) -> Iterable[str]:
        """What it cannot see, a sentence each, for the report."""

    def words(self) -> Mapping[str, str]:
        """What to write instead, for rules of ``xdevice.tensors.transfers.rules``, in the framework's own words."""


class Event(Protocol):
    """A place in a stream: what was queued before it, with the tensors that it brings."""

    def synchronize(self) -> None:
        """Wait until all of that is done, and its sources are read."""

    def wait(self) -> None:
        """Let what this thread queues on the device from now on begin after it.

        The memory of the tensors is used again only after what uses them then.
        """


class Stream(AbstractContextManager[Any], Protocol):
    """A queue of copies from the host to one device, beside the work that is queued there.

    As a context: this thread's copies are queued on it. It may be entered again.
    """

    def pinned(self, tensor: Any) -> Any:
        """The tensor in page-locked memory of the host, if the framework has such; else itself."""

    def record(self, tensors: Sequence[Any]) -> Event:
        """The end of what is queued now, which brings these tensors."""


class Streams(Protocol):
    """Copying beside computing."""

    def stream(self, device: Device) -> Stream | None:
        """A new stream of copies to a GPU; ``None`` where copies cannot have one of their own."""


class Arrivals(Protocol):
    """Waiting for tensors, under a framework whose calls return before they are made."""

    def wait(self, tensors: Sequence[Any]) -> None:
        """Wait until these are made, and what they are made from is read."""


@dataclass(frozen=True)
class Job:
    """One process of a job, once all of its processes have met.

    A block of ports belongs to the job, the same on every host: ``port`` is where the processes meet, ``port + 1``
    is for the engine's own master, ``port + 2 + rank`` for each process, and as many again for what else an
    engine starts beside one.
    """

    rank: int
    world_size: int
    local_rank: int
    hosts: tuple[str, ...]  # of each rank, as the others reach it
    local_ranks: tuple[int, ...]  # of each rank
    port: int
    address: str | None = None  # this process's own, as the other hosts reach it, where it is known
    interface: str | None = None  # the network interface that has it, likewise
    secret: str = ""  # random, the same in all processes, and known to no other
    trusts_network: bool = (
        False  # whether the engine may listen where any process can connect to it
    )

    @property
    def master(self) -> str:
        """Where the engine's master is: ``host:port``."""
        return f"{self.hosts[0]}:{self.port + 1}"

    @property
    def addresses(self) -> tuple[str, ...]:
        """Each rank's own ``host:port``."""
        return tuple(f"{host}:{self.port + 2 + rank}" for rank, host in enumerate(self.hosts))

    def helper_port(self, rank: int) -> int:
        """A port on that rank's host for what its engine starts beside it."""
        return self.port + 2 + self.world_size + rank


class Engine(Protocol):
    """The framework's own way to compute in several processes.

    Vectors are made by `Collectives.pack`, of one dtype and length, one element at least, in every process, and may
    be overwritten. A call comes back when its result is there, of the vector's dtype and on its device.
    """

    def start(self, job: Job, timeout: float) -> None:
        """Join the other processes, all of which are there: they have met already. Seconds."""

    def all_reduce(self, vector: Any, op: str) -> Any:
        """The ``sum``, ``mean``, ``max`` or ``min`` of every process's vector, a new one; NaN where one has NaN."""

    def broadcast(self, vector: Any, root: int) -> Any:
        """The vector of process ``root``, bit for bit, a new one."""

    def all_gather(self, vector: Any) -> list[Any]:
        """Every process's vector, bit for bit, in the order of ranks."""

    def stop(self) -> None:
        """Leave. Every other process does so at the same time."""
