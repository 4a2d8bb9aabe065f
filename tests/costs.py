"""The processor time of tests: the slowest are listed, and one that takes too long for a push fails."""

import os

import pytest

from xdevice.virtual import plugins

MOST = 5.0  # seconds of processor time, of a test and its child processes
BUSY = 2  # beside other work, the same test takes up to so many times that
processor_time = pytest.StashKey[float]()
of_forks = 0.0  # processor time of programs whose parent process goes on: see in_a_fork


def used():
    return sum(os.times()[:4]) + of_forks


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    before = used()
    try:
        return (yield)
    finally:
        item.stash[processor_time] = used() - before


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Fail a test that takes too long for a push, or was skipped although there is a compiler."""
    report = yield
    seconds = item.stash.get(processor_time, 0.0)
    if report.when == "call":
        report.user_properties.append(("processor", seconds))
    is_long = report.when == "call" and seconds > BUSY * MOST
    if is_long and report.passed and not item.get_closest_marker("weekly"):
        report.outcome = "failed"
        report.longrepr = (
            f"took {seconds:.1f} s of processor time: above {MOST:g} s, mark it weekly"
        )
    elif report.skipped and "C++ compiler" in str(report.longrepr) and plugins.compiler():
        report.outcome = "failed"
        report.longrepr = f"there is a C++ compiler, and it was skipped: {report.longrepr[-1]}"
    return report


def pytest_terminal_summary(terminalreporter):
    """Print the processor time of the run, and the tests that take the most of it."""
    reports = [report for some in terminalreporter.stats.values() for report in some]
    measured = sorted(
        (
            (dict(report.user_properties)["processor"], report.nodeid)
            for report in reports
            if getattr(report, "user_properties", None)
        ),
        reverse=True,
    )
    terminalreporter.line(f"{sum(os.times()[:4]):.0f} s of processor time; the slowest tests:")
    for seconds, name in measured[: int(os.environ.get("SLOWEST", "5"))]:
        terminalreporter.line(f"{seconds:5.1f} s {name}")
