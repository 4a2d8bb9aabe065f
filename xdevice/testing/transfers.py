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


_found = pytest.StashKey[list[Any]]()  # the lines that copied, where the baseline is to be written


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("xdevice", "frameworks and devices (xdevice)")
    known = "lines that may copy: no_transfers is about others; xdevice run --baseline reads the same file"
    group.addoption("--xdevice-baseline", metavar="FILE", help=known)
    keeps = "with it: write the lines that copy in tests with the mark no_transfers into the file"
    group.addoption("--xdevice-update-baseline", action="store_true", help=keeps)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Read the baseline; where it is to be written, tests with the mark may copy."""
    file = session.config.getoption("--xdevice-baseline")
    updates = session.config.getoption("--xdevice-update-baseline")
    if updates and (file is None or hasattr(session.config, "workerinput")):
        wanted = "--xdevice-baseline=FILE" if file is None else "one process, without pytest-xdist"
        raise pytest.UsageError(f"--xdevice-update-baseline needs {wanted}")
    if updates:
        session.config.stash[_found] = []
    elif file is not None:
        from xdevice.tensors.transfers.baseline import Baseline
        from xdevice.tensors.transfers.watching import accept

        try:
            accept(Baseline.read(session.config.invocation_params.dir / file))
        except XDeviceError as error:
            raise pytest.UsageError(str(error).replace("--update", "--xdevice-update")) from None
        session.config.add_cleanup(lambda: accept(None))


def pytest_sessionfinish(session: pytest.Session) -> None:
    if _found in session.config.stash:
        from xdevice.tensors.transfers.baseline import Baseline

        file = session.config.invocation_params.dir / session.config.getoption("--xdevice-baseline")
        lines = session.config.stash[_found]
        Baseline(file).write(lines)


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
    found = item.config.stash.get(_found, None)
    if found is not None:
        with watch_transfers() as report:
            try:
                return (yield)
            finally:
                found += report.lines
    if not any(budget.values()):
        with transfer_guard(level):
            return (yield)
    with watch_transfers() as report:
        result = yield
    _hold(report, level, budget)
    return result


def _read(
    level: Level = "forbid", *, max_copies: Any = None, max_bytes: Any = None
) -> tuple[Level, dict[str, int]]:
    """The level, and what may be copied; empty where nothing may."""
    from xdevice.tensors.transfers.guard import checked_level

    budget = {"max_copies": max_copies, "max_bytes": max_bytes}
    words = "{}={!r} is not a whole number of 0 or more"
    return checked_level(level), {
        k: whole_number(n, words.format(k, n)) for k, n in budget.items() if n is not None
    }


def _hold(report: Report, level: Level, budget: dict[str, int]) -> None:
    """Fail with the report, if more was copied than the budget."""
    counted = [each for each in report if level == "forbid" or each.kind != "copy"]
    copies, nbytes = sum(each.copies for each in counted), sum(each.nbytes for each in counted)
    if copies > budget.get("max_copies", copies) or nbytes > budget.get("max_bytes", nbytes):
        allowed = ", ".join(f"{name}={number}" for name, number in budget.items())
        pytest.fail(
            f"{copies} copies, {nbytes} bytes, and no_transfers({allowed}):\n{report}",
            pytrace=False,
        )
