"""The pytest plugin's part about copies between devices: the mark ``no_transfers`` and the fixture ``transfers``.

What watches is imported by the first test that needs it.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

from xdevice import XDeviceError, transfer_guard, watch_transfers
from xdevice.device import whole_number

if TYPE_CHECKING:
    from xdevice.tensors.transfers.guard import Level
    from xdevice.tensors.transfers.report import Report


@pytest.fixture
def transfers() -> Generator[Report, None, None]:
    """The report of what the test copies between devices, as `watch_transfers` gives it."""
    with watch_transfers() as report:
        yield report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Hold a test to what its mark allows: without a budget, the line that copies raises `TransferError`."""
    mark = item.get_closest_marker("no_transfers")
    if mark is None:
        return (yield)
    try:
        level, budget = _read(*mark.args, **mark.kwargs)
    except (TypeError, XDeviceError) as error:
        pytest.fail(f"@pytest.mark.no_transfers: {error}", pytrace=False)
    if not any(budget.values()):
        with transfer_guard(level):
            return (yield)
    with watch_transfers() as report:
        result = yield
    _hold(report, level, budget)
    return result


def _read(level: Level = "forbid", *, max_copies: Any = None, max_bytes: Any = None) -> tuple[Level, dict[str, int]]:
    """The level, and what may be copied; empty where nothing may."""
    from xdevice.tensors.transfers.guard import checked_level

    budget = {"max_copies": max_copies, "max_bytes": max_bytes}
    words = "{}={!r} is not a whole number of 0 or more"
    return checked_level(level), {k: whole_number(n, words.format(k, n)) for k, n in budget.items() if n is not None}


def _hold(report: Report, level: Level, budget: dict[str, int]) -> None:
    """Fail with the report, if more was copied than the budget."""
    counted = [each for each in report if level == "forbid" or each.kind != "copy"]
    copies, nbytes = sum(each.copies for each in counted), sum(each.nbytes for each in counted)
    if copies > budget.get("max_copies", copies) or nbytes > budget.get("max_bytes", nbytes):
        allowed = ", ".join(f"{name}={number}" for name, number in budget.items())
        pytest.fail(f"{copies} copies, {nbytes} bytes, and no_transfers({allowed}):\n{report}", pytrace=False)
