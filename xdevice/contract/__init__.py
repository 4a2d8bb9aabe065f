"""What an adapter must provide: one Protocol for each capability.

The functions of a capability are in a module of its name. An adapter is a
package of plain functions. It translates; the core decides. The core validates
all arguments first: the device exists, and a move is needed. An adapter leaves
out what its framework cannot do, and its ``CANNOT`` gives the reason.
"""

# ruff: noqa: F403, F405  (a star imports the names in a module's `__all__`)

from xdevice.contract import devices, engines, native, tensors, transfers
from xdevice.contract.devices import *
from xdevice.contract.engines import *
from xdevice.contract.native import *
from xdevice.contract.tensors import *
from xdevice.contract.transfers import *

__all__ = ["CAPABILITIES", "PROVIDED", "Capabilities"]
__all__ += devices.__all__
__all__ += engines.__all__
__all__ += native.__all__
__all__ += tensors.__all__
__all__ += transfers.__all__


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


_PROTOCOLS: dict[str, type] = Capabilities.__annotations__


def _functions_of(protocol: type) -> tuple[str, ...]:
    """The names of a Protocol's functions, and of its attributes."""
    names = [*vars(protocol), *protocol.__annotations__]
    return tuple(name for name in names if not name.startswith("_"))


CAPABILITIES: dict[str, tuple[str, ...]] = {
    name: _functions_of(protocol) for name, protocol in _PROTOCOLS.items()
}
"""Each capability with the functions that it may have."""

PROVIDED = {"virtual": "xdevice.virtual_gpus"}
"""The capabilities that another package provides, each with its group of entry points.

In the group, the name of the framework leads to the module.
"""
