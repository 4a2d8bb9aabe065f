"""The contract: what xdevice promises under every framework, as tests.

Each class is a part of the contract, each test a promise. An adapter inherits
them. `Suite` has all of them::

    from xdevice.testing import contract

    class TestToy(contract.Suite):
        backend = "toy"
        native = words  # an object with the functions of testing.Native
"""

from xdevice.testing.contract.creation import Creation, Exchange
from xdevice.testing.contract.crossing import Mixing, Transfers
from xdevice.testing.contract.data_parallel import DataParallel
from xdevice.testing.contract.gradients import Gradients
from xdevice.testing.contract.hardware import Hardware, SeveralDevices
from xdevice.testing.contract.maths import Maths, Standard
from xdevice.testing.contract.measuring import Memory, Timing
from xdevice.testing.contract.parallel import Parallel
from xdevice.testing.contract.placement import Models, Placement, SeveralPlacements
from xdevice.testing.contract.prefetching import Prefetching
from xdevice.testing.contract.promises import Promises, needs
from xdevice.testing.contract.scopes import Scopes
from xdevice.testing.contract.storage import Storage
from xdevice.testing.contract.trees import OpenWorld, Trees

__all__ = [
    "Creation",
    "DataParallel",
    "Exchange",
    "Gradients",
    "Hardware",
    "Maths",
    "Memory",
    "Mixing",
    "Models",
    "OpenWorld",
    "Parallel",
    "Placement",
    "Prefetching",
    "Promises",
    "Scopes",
    "SeveralDevices",
    "SeveralPlacements",
    "Standard",
    "Storage",
    "Suite",
    "Timing",
    "Transfers",
    "Trees",
    "needs",
]


class Suite(
    Hardware,
    Creation,
    Placement,
    Trees,
    OpenWorld,
    Models,
    Exchange,
    Gradients,
    Memory,
    Scopes,
    Timing,
    SeveralDevices,
    SeveralPlacements,
    Mixing,
    Transfers,
    Parallel,
    DataParallel,
    Prefetching,
    Storage,
    Maths,
    Standard,
):
    """The whole contract."""
