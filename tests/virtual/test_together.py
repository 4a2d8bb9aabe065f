"""Six frameworks on virtual GPUs in one process: the promises in which one could get in another's way.

Each keeps the whole contract in an environment of its own.
"""

from pathlib import Path

import pytest

from xdevice.testing import contract

NATIVE = Path(__file__).parents[1] / "native"


class TestTogether(contract.Hardware, contract.Exchange, contract.Scopes, contract.Mixing):
    native = NATIVE


@pytest.mark.weekly
class TestTensorsTogether(contract.Creation, contract.Placement, contract.SeveralPlacements):
    native = NATIVE
