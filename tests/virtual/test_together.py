"""Six frameworks on virtual GPUs in one process: the promises in which one could get in another's way.

Each keeps the whole contract in an environment of its own.
"""

from pathlib import Path

from xdevice.testing import contract


class TestTogether(
    contract.Hardware,
    contract.Creation,
    contract.Placement,
    contract.SeveralPlacements,
    contract.Exchange,
    contract.Scopes,
    contract.Mixing,
):
    native = Path(__file__).parents[1] / "native"
