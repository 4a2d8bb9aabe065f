"""The contract: what xdevice promises under every framework, as tests that an adapter inherits.

Each class is a part of it, each test a promise, and `Suite` has all of them::

    from xdevice.testing import contract

    class TestToy(contract.Suite):
        backend = "toy"
        native = words  # a module, or any object, with the functions of xdevice.testing.Native
"""

from xdevice.testing.contract.creation import Creation
from xdevice.testing.contract.data_parallel import DataParallel
from xdevice.testing.contract.exchange import Exchange
from xdevice.testing.contract.gradients import Gradients
from xdevice.testing.contract.hardware import Hardware
from xdevice.testing.contract.maths import Maths
from xdevice.testing.contract.memory import Memory
from xdevice.testing.contract.mixing import Mixing
from xdevice.testing.contract.models import Models
from xdevice.testing.contract.open_world import OpenWorld
from xdevice.testing.contract.parallel import Parallel
from xdevice.testing.contract.placement import Placement
from xdevice.testing.contract.promises import Promises, needs
from xdevice.testing.contract.scopes import Scopes
from xdevice.testing.contract.several import SeveralDevices
from xdevice.testing.contract.several_placement import SeveralPlacements
from xdevice.testing.contract.storage import Storage
from xdevice.testing.contract.timing import Timing
from xdevice.testing.contract.trees import Trees

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
    "Promises",
    "Scopes",
    "SeveralDevices",
    "SeveralPlacements",
    "Storage",
    "Suite",
    "Timing",
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
    Parallel,
    DataParallel,
    Storage,
    Maths,
):
    """All of the contract."""
