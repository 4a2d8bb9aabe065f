"""A pytest plugin for run.py: which tests would run, and what came of each, as lines of JSON.

``--foreign-log FILE`` is appended to; ``--foreign-only FILE`` names the tests to run, one id a line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from _pytest.skipping import evaluate_skip_marks

ADDRESS = re.compile(r"0x[0-9a-f]{6,}")


def pytest_addoption(parser: pytest.Parser) -> None:
    for name in ("log", "only"):
        parser.addoption(f"--foreign-{name}", type=Path)


def identity(item: pytest.Item) -> str:
    """The test's id, which is the same in every process."""
    return ADDRESS.sub("0x", item.nodeid).replace("\n", " ")


def is_skipped(item: pytest.Item) -> bool:
    """Whether a mark, or a decorator of unittest's, leaves the test out before it starts."""
    holders = getattr(item, "obj", None), getattr(item, "cls", None)
    if any(getattr(holder, "__unittest_skip__", False) for holder in holders):
        return True
    try:
        return evaluate_skip_marks(item) is not None
    except Exception:  # a condition that itself fails is the test's error when it is run
        return False


def write(config: pytest.Config, **line: object) -> None:
    with config.getoption("foreign_log").open("a") as log:
        log.write(json.dumps(line) + "\n")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    path = config.getoption("foreign_only")
    only = set(path.read_text().splitlines()) if path else None
    items[:] = [item for item in items if not is_skipped(item) and (only is None or identity(item) in only)]
    if config.option.collectonly:
        for item in items:
            write(config, test=identity(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    write(item.config, test=identity(item), outcome="started")
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    report = yield
    if report.outcome != "passed" or report.when == "call":
        write(item.config, test=identity(item), outcome=report.outcome, why=reason(report, call))
    return report


def reason(report: pytest.TestReport, call: pytest.CallInfo[None]) -> str:
    """The error's type and words, or those of the skip."""
    if report.outcome == "skipped" and isinstance(report.longrepr, tuple):
        return str(report.longrepr[2])
    if call.excinfo is None:
        return ""
    return " ".join(f"{call.excinfo.typename}: {call.excinfo.value}".split())[-3000:]


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed and (plugin := collected.get("config")):
        write(plugin, file=report.nodeid, error=str(report.longrepr)[-1500:])


collected: dict[str, pytest.Config] = {}
"""The run's configuration, which a report of what could not be imported does not have."""


def pytest_configure(config: pytest.Config) -> None:
    collected["config"] = config
