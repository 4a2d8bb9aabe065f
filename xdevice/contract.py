"""What an adapter must provide: one Protocol per capability, in a module of that name or the one in `MODULES`.

An adapter is a package of plain functions. It translates; the core decides. The core validates all
arguments first: a device exists, a shape is a tuple of ints, a move is needed. A function that the
framework cannot provide is left out, and the adapter's ``CANNOT`` gives the reason.
"""

# the body of a Protocol's method is its docstring
# pyright: reportReturnType=false

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypedDict

from xdevice.device import Device

if TYPE_CHECKING:
    import numpy as np

Role = Literal["tensor", "model", "device", "data"]
"""What a class is to its framework: a tensor (or parameter), a holder of tensors, a native device, or
something without tensors: a dtype, a shape, a layout."""


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
    interface: str | None = None  # the network interface with this process's address, where it is known
    secret: str = ""  # random, the same in all processes, and known to no other
    trusts_network: bool = False  # whether the engine may listen where any process can connect to it

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


class Differentiation(Protocol):
    """How a function is to be differentiated: hashable, and without the function itself."""

    def bind(self, fn: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Call:
        """The call of a function with these arguments, to be differentiated in this way."""


class Call(Protocol):
    """A function with its arguments, called with variables in place of the tensors to differentiate for."""

    fn: Callable[..., Any]
    args: Sequence[Any]
    kwargs: dict[str, Any]

    @property
    def how(self) -> Differentiation: ...

    def paths(self) -> list[str]:
        """Where the tensors to differentiate for are in their arguments, in order."""

    def __call__(self, variables: list[Any]) -> tuple[Any, Any]:
        """A tensor of one number, and whatever else the function returns."""


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

    def properties(self, device: Device) -> Properties: ...


class Placement(Protocol):
    """Where tensors are, and moving them."""

    def role(self, cls: type) -> Role | None:
        """What this class is to the framework; ``None`` if it is not the framework's."""

    def device_of(self, tensor: Any) -> Device:
        """Where it is. `MixedDeviceError` for several, `UnknownPlacementError` where unknowable.

        `TracedTensorError` where a compiler traces the tensor: `xdevice.device_of` then returns a device that is not
        known yet. A framework whose arrays have no place, or are in memory that the CPU and the GPU share, has one
        device: the kind that it computes on by default, ``count`` 1. Every array is there, and nothing is moved.
        """

    def move(self, tensor: Any, device: Device, non_blocking: bool) -> Any:
        """The tensor on another device, gradients flowing through. Blocks unless told not to."""

    def copy(self, tensor: Any) -> Any:
        """The tensor in memory of its own on the same device, gradients flowing through."""


class Trees(Protocol):
    """The framework's registry of containers: pytrees."""

    def is_node(self, cls: type) -> bool:
        """Whether the class is registered; Python's own containers do not count."""

    def opened(self, node: Any) -> tuple[list[Any], list[str], Callable[[list[Any]], Any], Any]:
        """Its parts, how each would be written behind it (``.x``, ``[0]``), what rebuilds it from new parts.

        Last, what it keeps besides: static fields, which stay as they are.
        """


class Data(Protocol):
    """Tensors that are not only of numbers."""

    def is_data(self, tensor: Any) -> bool:
        """Whether it is plain data where it is beside other tensors: a scalar, text, objects."""


class Models(Protocol):
    """Models: what the framework keeps parameters in."""

    def tensors_of(self, model: Any) -> Iterable[tuple[str, Any]]:
        """Each parameter and buffer with its dotted name. `UnknownPlacementError` if not built."""

    def move_model(self, model: Any, device: Device) -> Any:
        """Move as the framework moves a model, in place where it does that."""

    def keep(self, model: Any) -> Callable[[], None]:
        """Remember the model's tensors; the function returned puts them back as they are now, where they are now."""

    def copy_models(self, models: list[Any]) -> list[Any]:
        """Models of their own with equal parameters, on the same devices; what they share stays shared."""


class Compiling(Protocol):
    """The framework's compiler of functions: what it sees of a `scope`."""

    def is_tracing(self) -> bool:
        """Whether it traces a function in this thread."""

    def reuses_traces(self) -> bool:
        """Whether what it traced within one native scope is run within others too, and follows them there."""


class Creation(Protocol):
    """New tensors. A device of ``None`` is the framework's own default, a dtype likewise."""

    def dtype(self, name: str) -> Any:
        """The framework's dtype of that NumPy name (``float32``), or ``None`` if it has none."""

    def tensor(self, data: Any, dtype: Any, device: Device | None) -> Any:
        """Always a copy. ``data``: numbers, nested sequences, a NumPy array, an own tensor."""

    def empty(self, shape: tuple[int, ...], dtype: Any, device: Device | None) -> Any: ...
    def zeros(self, shape: tuple[int, ...], dtype: Any, device: Device | None) -> Any: ...
    def ones(self, shape: tuple[int, ...], dtype: Any, device: Device | None) -> Any: ...
    def full(self, shape: tuple[int, ...], value: Any, dtype: Any, device: Device | None) -> Any: ...
    def arange(self, start: Any, stop: Any, step: Any, dtype: Any, device: Device | None) -> Any: ...
    def rand(self, shape: tuple[int, ...], dtype: Any, device: Device | None) -> Any: ...
    def randn(self, shape: tuple[int, ...], dtype: Any, device: Device | None) -> Any: ...
    def seed(self, n: int) -> None:
        """Seed the framework's generators on every device."""


class Exchange(Protocol):
    """Out of the framework."""

    def to_numpy(self, tensor: Any) -> np.ndarray[Any, Any]:
        """A NumPy array on the host that shares no memory with the tensor and may be written."""


class Sharing(Protocol):
    """Memory on the CPU shared with other frameworks, through DLPack."""

    def export(self, tensor: Any) -> tuple[Any, bool] | None:
        """An object with ``__dlpack__`` on the memory of a tensor on the CPU, and whether the tensor may be written.

        ``None`` where the memory cannot be shared, or sharing it could go wrong.
        """

    def adopt(self, exporter: Any, writable: bool) -> Any:
        """A tensor on the memory of what `export` gave; ``None`` where this framework would have to copy it.

        A framework whose tensors may be written must not adopt memory that may not be, and one whose tensors
        never change must not adopt memory that may be written. Whatever it raises means ``None`` too.
        """


class Memory(Protocol):
    """What the framework's allocator knows."""

    def memory_stats(self, device: Device) -> MemoryStats:
        """Only what the framework knows; the core fills in the rest, and the host's own figures."""

    def empty_cache(self, device: Device | None) -> None: ...
    def is_out_of_memory(self, error: BaseException) -> bool:
        """Whether this one error is the framework's word for no memory left."""


class Gradients(Protocol):
    """The framework's automatic differentiation, as a function."""

    def is_floating(self, tensor: Any) -> bool:
        """Whether the tensor is of floating-point numbers, so that it can have a gradient."""

    def value_and_gradients(self, call: Call, parameters: list[Any], nested: bool) -> tuple[Any, Any, list[Any]]:
        """``call(variables)`` returns a tensor of one number, and more; its value, that, and the gradients.

        The variables stand for the parameters one by one, each an object of its own. A gradient is on its
        parameter's device, zeros where the value does not depend on it. The value is detached, unless this is
        ``nested`` in another call: then value and gradients can be differentiated in their turn.
        """


class Virtual(Protocol):
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


class Mixing(Protocol):
    """Operations on tensors of several devices."""

    def forbid(self) -> AbstractContextManager[Any]:
        """A context in which such an operation raises `MixedDeviceError`, if it can be in every thread."""


class Collectives(Protocol):
    """Several tensors at once: in parts, in one piece, added up. The core has checked that they fit."""

    def kind(self, tensor: Any) -> str:
        """NumPy's letter for the dtype's kind: ``f`` (bfloat16 too), ``i``, ``u``, ``b``, ``c``; ``O`` for others.

        `ArgumentTypeError` for a tensor that is not one plain array: sparse, ragged, masked; it says how to make one.
        """

    def split(self, tensor: Any, sizes: Sequence[int]) -> list[Any]:
        """Parts of that many rows each along the first axis, on the tensor's device; they may share its memory.

        `NotSupportedError` for a kind of tensor that the framework cannot split.
        """

    def leaf(self, tensor: Any) -> Any:
        """The tensor that was just copied, of no graph, and ready for gradients where the framework marks that."""

    def pack(self, tensors: Sequence[Any]) -> Any:
        """One new vector of all their numbers, of no graph; they are on one device and of one dtype.

        Gradients may be sparse where the framework makes such.
        """

    def unpack(self, vector: Any, like: Sequence[Any]) -> list[Any]:
        """The vector's numbers in the shapes of those tensors, in memory of their own where they can be written."""

    def reduce(self, vectors: Sequence[Any], op: str, weights: Sequence[float] | None) -> Any:
        """Their ``sum``, ``max`` or ``min``, element by element, each times its weight: a new vector.

        They are on one device, of one dtype and length; there is one at least.
        """

    def threads(self) -> Callable[[], AbstractContextManager[Any]] | None:
        """What another thread enters to compute as this one does now; its settings may be this thread's own.

        ``None`` if gradients are not to be computed in several threads at once.
        """


class Maths(Protocol):
    """The framework's arrays under the array API standard's names."""

    def namespace(self) -> Mapping[str, Any]:
        """Each of `xdevice.tensors.array_api.names.NAMES` that the framework has, with what it stands for."""

    def module(self) -> ModuleType:
        """The framework's module with the functions that are not in that list."""


class Linalg(Maths, Protocol):
    """The same for the standard's extension ``linalg``, whose names are in `LINALG`."""


class Fft(Maths, Protocol):
    """The same for the standard's extension ``fft``, whose names are in `FFT`."""


class Storage(Protocol):
    """The bits of numbers that NumPy has no dtype for: bfloat16, floats of 8 bits."""

    def to_bits(self, tensor: Any) -> np.ndarray[Any, Any]:
        """The values' bytes on the host, in order: a vector of uint8."""

    def from_bits(self, bits: np.ndarray[Any, Any], shape: tuple[int, ...], dtype: Any, device: Device) -> Any:
        """A new tensor of what `to_bits` gave, of one of the framework's own dtypes."""


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


def _methods(protocol: type) -> tuple[str, ...]:
    return tuple(name for each in protocol.__mro__ for name in vars(each) if not name.startswith("_"))


CAPABILITIES: dict[str, tuple[str, ...]] = {
    p.__name__.lower(): _methods(p)
    for p in (
        *(Hardware, Placement, Trees, Data, Models, Creation, Exchange, Sharing, Memory, Gradients, Virtual, Mixing),
        *(Compiling, Collectives, Maths, Linalg, Fft, Storage, Engine),
    )
}
"""Each capability with the functions that it may have."""

MODULES = {"trees": "models", "data": "placement", "sharing": "exchange", "linalg": "maths.linalg", "fft": "maths.fft"}
"""Where an adapter has the functions of a capability, if not in the module of that name."""
