"""``--xdevice-exclude``: a file of tests that are expected to fail, until one no longer does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

_PROPERTY = "xdevice_excluded"  # of a report: the number of the line
_NO_TEST = "xdevice_excluded_no_test"  # of a worker of pytest-xdist: numbers of lines


class Entry(NamedTuple):
    """A line of the file: an id of a test, with wildcards, and why it is excluded."""

    line: int
    pattern: str
    reason: str
    runs: bool

    def matches(self, nodeid: str) -> bool:
        wildcards = re.escape(self.pattern).replace(r"\*", ".*").replace(r"\?", ".")
        return re.fullmatch(rf"{wildcards}((::|\[).*)?", nodeid) is not None

    def may_be_elsewhere(self, nodeids: list[str]) -> bool:
        """Whether the run does not tell if the test exists.

        The file is not collected, or the test exists with other parameters.
        """
        function = self.pattern.partition("[")[0]
        file = function.partition("::")[0]
        if "*" in function or "?" in function:
            return False
        if not any(nodeid.startswith(f"{file}::") for nodeid in nodeids):
            return True
        return function != self.pattern and any(
            re.match(rf"{re.escape(function)}(\[|$)", nodeid) for nodeid in nodeids
        )


def read(text: str) -> list[Entry]:
    """The entries of a file.

    A line is the id of a test, or the beginning of several ids: of a file, a
    class or a function. ``*`` and ``?`` are wildcards. The reason follows
    ``#``. A test whose line begins with ``skip`` is not run.
    """
    entries: list[Entry] = []
    for number, line in enumerate(text.splitlines(), 1):
        pattern, _, reason = re.sub(r"(^|\s)#", "\0", line, count=1).partition("\0")
        words = pattern.strip().removeprefix("skip ").strip()
        if words:
            runs = not pattern.strip().startswith("skip ")
            entries.append(Entry(number, words, reason.strip(), runs))
    return entries


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("xdevice", "frameworks and devices (xdevice)")
    group.addoption(
        "--xdevice-exclude",
        metavar="FILE",
        help="tests that are expected to fail, an id in each line, with * and ?; the run fails "
        "if a line has become unnecessary: all its tests pass, or there is no such test",
    )
    group.addoption(
        "--xdevice-update-exclude",
        action="store_true",
        help="with --xdevice-exclude: add the tests that fail to FILE, and remove its "
        "unnecessary lines",
    )


def pytest_configure(config: pytest.Config) -> None:
    name: str | None = config.getoption("--xdevice-exclude")
    updates = config.getoption("--xdevice-update-exclude")
    if name is None:
        if updates:
            raise pytest.UsageError("--xdevice-update-exclude needs --xdevice-exclude=FILE")
        return
    path = config.invocation_params.dir / name
    try:
        text = path.read_text(encoding="utf-8-sig")  # an editor may begin it with a byte order mark
    except OSError as error:
        if not (updates and isinstance(error, FileNotFoundError)):
            raise pytest.UsageError(f"--xdevice-exclude={name}: {error.strerror}") from None
        text = ""
    config.pluginmanager.register(Exclusions(name, path, text, updates), "xdevice exclusions")


class Exclusions:
    """The file, and what the tests of its lines did."""

    def __init__(self, name: str, path: Path, text: str, updates: bool) -> None:
        self.name, self.path, self.updates = name, path, updates
        self.lines = text.splitlines()
        self.entries = read(text)
        self.passing: dict[int, int] = {}  # the number of tests by line
        self.failing: dict[int, int] = {}
        self.without_test: set[int] = set()
        self.new: dict[str, None] = {}  # tests that fail and are not in the file

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Expect the tests of the file to fail; find lines without a test."""
        matched: set[int] = set()
        for item in items:
            for entry in self.entries:
                if entry.matches(item.nodeid):
                    matched.add(entry.line)
                    self._expect_failure(item, entry)
        if any("::" in argument for argument in config.args):
            return
        nodeids = [item.nodeid for item in items]
        others = [entry for entry in self.entries if entry.line not in matched]
        self.without_test = {entry.line for entry in others if not entry.may_be_elsewhere(nodeids)}

    def _expect_failure(self, item: pytest.Item, entry: Entry) -> None:
        reason = f"{self.name}:{entry.line}: {entry.reason or 'excluded'}"
        item.add_marker(pytest.mark.xfail(reason=reason, strict=False, run=entry.runs))
        item.user_properties.append((_PROPERTY, entry.line))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        lines: list[Any] = [value for key, value in report.user_properties if key == _PROPERTY]
        if not lines:
            if report.failed:
                self.new[report.nodeid] = None
        elif hasattr(report, "wasxfail"):
            outcomes = self.passing if report.passed else self.failing
            for line in lines:
                outcomes[line] = outcomes.get(line, 0) + 1

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """A worker of pytest-xdist has ended."""
        self.without_test.update(getattr(node, "workeroutput", {}).get(_NO_TEST, ()))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workerinput"):
            output: dict[str, Any] = session.config.workeroutput  # type: ignore[attr-defined]
            output[_NO_TEST] = sorted(self.without_test)
        elif self.updates:
            self._write()
        elif self.problems() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self.updates:
            counts = f"{len(self.new)} lines added, {len(self.problems())} removed"
            terminalreporter.line(f"xdevice: {self.name}: {counts}")
            return
        for problem in self.problems().values():
            terminalreporter.line(f"xdevice: {problem}", red=True)

    def problems(self) -> dict[int, str]:
        """What to say of each line that has become unnecessary."""
        found: dict[int, str] = {}
        for entry in self.entries:
            problem = None
            if entry.line in self.passing and entry.line not in self.failing:
                problem = "passes"
                if self.passing[entry.line] > 1:
                    problem = f"passes, as {self.passing[entry.line]} tests"
            elif entry.line in self.without_test:
                problem = "is not a test"
            if problem:
                place = f"{self.name}:{entry.line}"
                found[entry.line] = f"{place} is unnecessary: {entry.pattern} {problem}; remove it"
        return found

    def _write(self) -> None:
        unnecessary = self.problems()
        kept = [line for i, line in enumerate(self.lines, 1) if i not in unnecessary]
        self.path.write_text("\n".join([*kept, *self.new, ""]), encoding="utf-8")
