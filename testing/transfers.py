"""The mark ``no_transfers`` and the fixture ``transfers``: copies in tests.

The first test that needs a watcher imports it.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

from xdevice import XDeviceError, transfer_guard, watch_transfers
from xdevice.integers import whole_number

if TYPE_CHECKING:
    from xdevice.transfers.guard import Level
    from xdevice.transfers.report import Report


_copying_lines = pytest.StashKey[Any]()  # present if the baseline is to be written


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("xdevice", "frameworks and devices (xdevice)")
    baseline = (
        "lines that may copy in spite of no_transfers; xdevice watch --baseline reads the file"
    )
    group.addoption("--xdevice-baseline", metavar="FILE", help=baseline)
    update = "with --xdevice-baseline: write the lines that copy in no_transfers tests to FILE"
    group.addoption("--xdevice-update-baseline", action="store_true", help=update)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Read the baseline; if it is to be written, marked tests may copy."""
    file = session.config.getoption("--xdevice-baseline")
    updates = session.config.getoption("--xdevice-update-baseline")
    if updates and (file is None or hasattr(session.config, "workerinput")):
        need = "one process, without pytest-xdist"
        if file is None:
            need = "--xdevice-baseline=FILE"
        raise pytest.UsageError(f"--xdevice-update-baseline needs {need}")
    if updates:
        session.config.stash[_copying_lines] = []
    elif file is not None:
        from xdevice.transfers.baseline import Baseline
        from xdevice.transfers.watching import accept

        try:
            accept(Baseline.read(session.config.invocation_params.dir / file))
        except XDeviceError as error:
            raise pytest.UsageError(str(error).replace("--update", "--xdevice-update")) from None
        session.config.add_cleanup(lambda: accept(None))


def pytest_sessionfinish(session: pytest.Session) -> None:
    if _copying_lines in session.config.stash:
        from xdevice.transfers.baseline import Baseline

        file = session.config.invocation_params.dir / session.config.getoption("--xdevice-baseline")
        Baseline(file).write(session.config.stash[_copying_lines])


@pytest.fixture
def transfers() -> Generator[Report, None, None]:
    """The report of `watch_transfers` on the copies of the test."""
    with watch_transfers() as report:
        yield report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Check the copies of a marked test.

    Without a budget, the line that copies raises `TransferError`.
    """
    __tracebackhide__ = True
    mark = item.get_closest_marker("no_transfers")
    if mark is None:
        return (yield)
    try:
        level, budget = _read(*mark.args, **mark.kwargs)
    except (TypeError, XDeviceError) as error:
        pytest.fail(f"@pytest.mark.no_transfers: {error}", pytrace=False)
    copying_lines = item.config.stash.get(_copying_lines, None)
    if copying_lines is not None:
        with watch_transfers() as report:
            try:
                return (yield)
            finally:
                copying_lines += report.lines
    if not any(budget.values()):
        with transfer_guard(level):
            return (yield)
    with watch_transfers() as report:
        result = yield
    _check_budget(report, level, budget)
    return result


def _read(
    level: Level = "forbid", *, max_copies: Any = None, max_bytes: Any = None
) -> tuple[Level, dict[str, int]]:
    """The level, and the budget of copies and bytes.

    The budget is empty if the test may copy nothing.
    """
    from xdevice.transfers.guard import checked_level

    budget: dict[str, int] = {}
    for name, limit in (("max_copies", max_copies), ("max_bytes", max_bytes)):
        if limit is not None:
            message = f"{name}={limit!r} is not a whole number of 0 or more"
            budget[name] = whole_number(limit, message)
    return checked_level(level), budget


def _check_budget(report: Report, level: Level, budget: dict[str, int]) -> None:
    """Fail with the report if more was copied than the budget allows."""
    counted = [finding for finding in report if level == "forbid" or finding.kind != "copy"]
    copies = sum(finding.copies for finding in counted)
    nbytes = sum(finding.nbytes for finding in counted)
    if copies > budget.get("max_copies", copies) or nbytes > budget.get("max_bytes", nbytes):
        allowed = ", ".join(f"{name}={number}" for name, number in budget.items())
        pytest.fail(
            f"{copies} copies, {nbytes} bytes, and no_transfers({allowed}):\n{report}",
            pytrace=False,
        )
