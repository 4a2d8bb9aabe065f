"""What an adapter must provide: one Protocol per capability, in a module of that name or the one in `MODULES`.

An adapter is a package of plain functions. It translates; the core decides. The core validates all
arguments first: a device exists, a shape is a tuple of ints, a move is needed. A function that the
framework cannot provide is left out, and the adapter's ``CANNOT`` gives the reason.
"""

from xdevice.contract.computing import (
    Call,
    Collectives,
    Differentiation,
    Extension,
    Fft,
    Gradients,
    Linalg,
    Maths,
    Packing,
    Storage,
)
from xdevice.contract.devices import (
    Allocation,
    Build,
    Hardware,
    Memory,
    MemoryStats,
    Mixing,
    Preparation,
    Properties,
    Races,
    Virtual,
)
from xdevice.contract.jobs import Engine, Job
from xdevice.contract.tensors import (
    Compiling,
    Creation,
    Data,
    Exchange,
    Following,
    Models,
    Placement,
    Role,
    Sharing,
    Tracing,
    Trees,
)
from xdevice.contract.transfers import Copy, Kind, Lane, Lanes, Mark, Transfers, Watcher

# fmt: off
__all__ = [
    "CAPABILITIES", "MODULES", "PREPARING", "Allocation", "Build", "Call", "Collectives", "Compiling", "Copy",
    "Creation", "Data", "Differentiation", "Engine", "Exchange", "Extension", "Fft", "Following", "Gradients",
    "Hardware", "Job", "Kind", "Lane", "Lanes", "Linalg", "Mark", "Maths", "Memory", "MemoryStats", "Mixing",
    "Models", "Packing", "Placement", "Preparation", "Properties", "Races", "Role", "Sharing", "Storage", "Tracing",
    "Transfers", "Trees", "Virtual", "Watcher",
]
# fmt: on


def _methods(protocol: type) -> tuple[str, ...]:
    return tuple(name for each in protocol.__mro__ for name in vars(each) if not name.startswith("_"))


def _is_preparation(protocol: type) -> bool:
    return Preparation in protocol.__mro__


_PROTOCOLS: tuple[type, ...] = (
    *(Hardware, Placement, Trees, Data, Models, Creation, Exchange, Sharing, Memory, Allocation, Gradients, Virtual),
    *(Races, Mixing, Compiling, Following, Tracing, Collectives, Maths, Linalg, Fft, Storage, Transfers, Lanes),
    *(Packing, Engine),
)

CAPABILITIES = {p.__name__.lower(): _methods(p) for p in _PROTOCOLS}
"""Each capability with the functions that it may have."""

PREPARING = frozenset(p.__name__.lower() for p in filter(_is_preparation, _PROTOCOLS))
"""The capabilities that count as no first use of a framework."""

MODULES = {
    "trees": "models", "data": "placement", "sharing": "exchange", "linalg": "maths.linalg", "fft": "maths.fft",
    "lanes": "transfers", "following": "compiling", "tracing": "compiling", "allocation": "memory",
    "packing": "collectives", "races": "virtual",
}  # fmt: skip
"""Where an adapter has the functions of a capability, if not in the module of that name."""
