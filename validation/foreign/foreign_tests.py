"""A pytest plugin for run.py: which tests would run, and what came of each, as lines of JSON.

``--foreign-log FILE`` is appended to; ``--foreign-only FILE`` names the tests to run, one id a line;
``--foreign-device`` is where PyTorch makes the tensors for which a test names no device.
"""

from __future__ import annotations

import json
import random
import re
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from _pytest.skipping import evaluate_skip_marks

ADDRESS = re.compile(r"0x[0-9a-f]{6,}")


def pytest_addoption(parser: pytest.Parser) -> None:
    for name in ("log", "only"):
        parser.addoption(f"--foreign-{name}", type=Path)
    parser.addoption("--foreign-device")


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
    items[:] = [
        item for item in items if not is_skipped(item) and (only is None or identity(item) in only)
    ]
    if config.option.collectonly:
        for item in items:
            write(config, test=identity(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    write(item.config, test=identity(item), outcome="started")
    result = yield
    write(item.config, test=identity(item), outcome="over")
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, Any, Any]:
    report = yield
    if report.outcome != "passed":
        write(item.config, test=identity(item), outcome=report.outcome, why=reason(report, call))
    return report


def reason(report: pytest.TestReport, call: pytest.CallInfo[None]) -> str:
    """The error's type and words, or those of the skip."""
    if hasattr(report, "wasxfail"):
        return f"xfail: {report.wasxfail}"
    if report.outcome == "skipped" and isinstance(report.longrepr, tuple):
        return str(report.longrepr[2])
    if call.excinfo is None:
        return str(report.longrepr or "")[-3000:]
    return " ".join(f"{call.excinfo.typename}: {call.excinfo.value}".split())[-3000:]


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Draw the same random numbers for a file's parameters in every process, for ids are made of them."""
    if isinstance(collector, pytest.Module):
        random.seed(0)
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed(0)
        if "torch" in sys.modules:
            sys.modules["torch"].manual_seed(0)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """A file of which no test is there: it cannot be imported, or skips itself as a whole."""
    if report.passed or "config" not in collected:
        return
    skipped = report.skipped and isinstance(report.longrepr, tuple)
    why = report.longrepr[2] if skipped else str(report.longrepr)[-1500:]
    write(collected["config"], file=report.nodeid, outcome=report.outcome, why=why)


collected: dict[str, pytest.Config] = {}
"""The run's configuration, which a report of what could not be imported does not have."""


def pytest_configure(config: pytest.Config) -> None:
    collected["config"] = config
    if device := config.getoption("foreign_device"):
        import torch

        torch.set_default_device(device)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.config.option.collectonly:
        write(session.config, collected=True)
