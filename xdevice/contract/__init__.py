"""What an adapter must provide: one Protocol per capability, in a module of that name or the one in `MODULES`.

An adapter is a package of plain functions. It translates; the core decides. The core validates all arguments first: a
device exists, a move is needed. What the framework cannot provide is left out; the adapter's ``CANNOT`` says why.
"""

# ruff: noqa: F403, F405  (what the modules have in their `__all__`)

from xdevice.contract import devices, engines, tensors, transfers
from xdevice.contract.devices import *
from xdevice.contract.engines import *
from xdevice.contract.tensors import *
from xdevice.contract.transfers import *

__all__ = ["CAPABILITIES", "MODULES", "PREPARING", "PROVIDED", "Capabilities"]
__all__ += devices.__all__
__all__ += engines.__all__
__all__ += tensors.__all__
__all__ += transfers.__all__


class Capabilities:
    """What an adapter can have: all capabilities there are, by name."""

    hardware: Hardware
    placement: Placement
    trees: Trees
    data: Data
    models: Models
    creation: Creation
    exchange: Exchange
    sharing: Sharing
    memory: Memory
    allocation: Allocation
    gradients: Gradients
    virtual: Virtual
    races: Races
    mixing: Mixing
    compiling: Compiling
    following: Following
    tracing: Tracing
    collectives: Collectives
    maths: Maths
    linalg: Linalg
    fft: Fft
    storage: Storage
    transfers: Transfers
    streams: Streams
    arrivals: Arrivals
    packing: Packing
    engine: Engine


CAPABILITIES: dict[str, tuple[str, ...]] = {
    name: tuple(
        function
        for each in protocol.__mro__
        for function in vars(each)
        if not function.startswith("_")
    )
    for name, protocol in Capabilities.__annotations__.items()
}
"""Each capability with the functions that it may have."""

PREPARING = frozenset(
    name for name, p in Capabilities.__annotations__.items() if Preparation in p.__mro__
)
"""The capabilities that count as no first use of a framework."""

MODULES = {
    "trees": "models", "data": "placement", "sharing": "exchange", "linalg": "maths.linalg", "fft": "maths.fft",
    "following": "compiling", "tracing": "compiling", "allocation": "memory", "arrivals": "streams",
    "packing": "collectives", "races": "virtual",
}  # fmt: skip
"""Where an adapter has the functions of a capability, if not in the module of that name."""

PROVIDED = {"virtual": "xdevice.virtual_gpus"}
"""The entry-point group in which another package provides a module of that name for a framework."""
