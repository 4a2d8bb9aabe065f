"""The contract: what xdevice promises under every framework, as tests that an adapter inherits.

Each class is a part of it, each test a promise, and `Suite` has all of them::

    from xdevice.testing import contract

    class TestToy(contract.Suite):
        backend = "toy"
        native = words  # a module, or any object, with the functions of xdevice.testing.Native
"""

from xdevice.testing.contract.computing.batches import Prefetching
from xdevice.testing.contract.computing.data_parallel import DataParallel
from xdevice.testing.contract.computing.gradients import Gradients
from xdevice.testing.contract.computing.maths import Maths
from xdevice.testing.contract.computing.parallel import Parallel
from xdevice.testing.contract.computing.standard import Standard
from xdevice.testing.contract.devices.hardware import Hardware, SeveralDevices
from xdevice.testing.contract.devices.measuring import Memory, Timing
from xdevice.testing.contract.devices.mixing import Mixing
from xdevice.testing.contract.devices.scopes import Scopes
from xdevice.testing.contract.promises import Promises, needs
from xdevice.testing.contract.tensors.creation import Creation, Exchange
from xdevice.testing.contract.tensors.placement import Models, Placement
from xdevice.testing.contract.tensors.several_placement import SeveralPlacements
from xdevice.testing.contract.tensors.storage import Storage
from xdevice.testing.contract.tensors.transfers import Transfers
from xdevice.testing.contract.tensors.trees import OpenWorld, Trees

__all__ = ["Creation", "DataParallel", "Exchange", "Gradients", "Hardware", "Maths", "Memory", "Mixing", "Models"]
__all__ += ["OpenWorld", "Parallel", "Placement", "Prefetching", "Promises", "Scopes", "SeveralDevices"]
__all__ += ["SeveralPlacements", "Standard", "Storage", "Suite", "Timing", "Transfers", "Trees", "needs"]


class Suite(
    Hardware, Creation, Placement, Trees, OpenWorld, Models, Exchange, Gradients, Memory, Scopes, Timing,
    SeveralDevices, SeveralPlacements, Mixing, Transfers, Parallel, DataParallel, Prefetching, Storage, Maths, Standard,
):  # fmt: skip
    """All of the contract."""
