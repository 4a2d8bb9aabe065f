"""What an adapter must provide: one Protocol for each capability.

The functions of a capability are in a module of its name. An adapter is a
package of plain functions. It translates; the core decides. The core validates
all arguments first: the device exists, and a move is needed. An adapter leaves
out what its framework cannot do, and its ``CANNOT`` gives the reason. It needs
at least ``kinds``, ``count``, ``native`` and ``as_device`` of `Hardware`, and
``category``, ``device_of``, ``move`` and ``copy`` of `Placement`. A name that
the module has imported counts as its function.
"""

# ruff: noqa: F403, F405  (a star imports the names in a module's `__all__`)

from xdevice.contract.computing import *
from xdevice.contract.creation import *
from xdevice.contract.devices import *
from xdevice.contract.engines import *
from xdevice.contract.exchange import *
from xdevice.contract.memory import *
from xdevice.contract.native import *
from xdevice.contract.tensors import *
from xdevice.contract.transfers import *
from xdevice.contract.virtual import *


class Capabilities:
    """All capabilities that an adapter can have, by name."""

    hardware: Hardware
    placement: Placement
    models: Models
    creation: Creation
    exchange: Exchange
    memory: Memory
    gradients: Gradients
    virtual: Virtual
    mixing: Mixing
    compiling: Compiling
    numerics: Numerics
    collectives: Collectives
    maths: Maths
    storage: Storage
    transfers: Transfers
    streams: Streams
    engine: Engine


CAPABILITIES: dict[str, tuple[str, ...]] = {
    capability: tuple(
        name for name in (*vars(protocol), *protocol.__annotations__) if not name.startswith("_")
    )
    for capability, protocol in Capabilities.__annotations__.items()
}
"""Each capability with the functions, and attributes, that it may have."""

PROVIDED = {"virtual": "xdevice.virtual_gpus"}
"""The capabilities that another package provides, each with its group of entry points.

In the group, the name of the framework leads to the module.
"""
