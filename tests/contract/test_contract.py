"""The contract, under each framework asked for; ``tests/native`` has the framework's own words."""

from pathlib import Path

from xdevice.testing import contract


class TestContract(contract.Suite):
    native = Path(__file__).parents[1] / "native"
