"""A run of a project's tests, and its figures."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from projects import HERE, Project

OUTCOMES = ("passed", "failed", "skipped", "xfailed")
OPTIONS = [
    "-p",
    "no:cacheprovider",
    "-o",
    "addopts=",
    "-q",
    "--tb=short",
    "--continue-on-collection-errors",
]


def run(project: Project, folder: Path, mode: str) -> dict[str, Any]:
    """The figures of the runs in each environment, together."""
    count: Counter[str] = Counter()
    fail: list[str] = []
    why: Counter[str] = Counter()
    for environment in project.each if mode == "before" else project.each_after:
        for test, outcome, reason in outcomes(project, folder, mode, environment):
            count[outcome] += 1
            if outcome == "failed":
                fail.append(" ".join([*environment.values(), test]))
                why[reason] += 1
    return {
        **{outcome: count[outcome] for outcome in OUTCOMES},
        "fail": fail,
        "why": dict(why.most_common(12)),
    }


def outcomes(
    project: Project, folder: Path, mode: str, environment: dict[str, str]
) -> list[tuple[str, str, str]]:
    """What came of each test, and why it failed."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.xml"
        command = [sys.executable, "-m", "pytest", *OPTIONS, f"--junitxml={report}"]
        if mode in ("virtual", "issues"):
            command.append("--xdevice-virtual-gpus=2:stand-in")
        command += tests_of(project, folder, mode)
        subprocess.run(
            command,
            cwd=folder,
            env=environment_of(project, folder, environment),
            timeout=project.timeout,
        )
        if not report.exists():
            raise SystemExit(f"{project.name} {mode}: pytest ended without a report; see above")
        return [_outcome(case) for case in ElementTree.parse(report).iter("testcase")]


def tests_of(project: Project, folder: Path, mode: str) -> list[str]:
    """The project's tests, or ours of its reported faults, and pytest's options for them."""
    if mode == "issues":
        ours = str(issues_of(project))
        return ["-c", os.devnull, f"--rootdir={folder}", *project.issues, ours]
    tests = [test.replace("{here}", str(HERE)) for test in project.tests]
    return [*project.arguments, *getattr(project, mode), *tests]


def issues_of(project: Project) -> Path:
    return HERE / "issues" / f"{project.name.replace('-', '_')}_issues.py"


def environment_of(project: Project, folder: Path, more: dict[str, str]) -> dict[str, str]:
    path = os.pathsep.join(str(folder / part) for part in project.path)
    return {**os.environ, "PYTHONPATH": path, **project.environment, **more}


def _outcome(case: ElementTree.Element) -> tuple[str, str, str]:
    test = f"{case.get('classname')}::{case.get('name')}"
    for kind in ("failure", "error"):
        found = case.find(kind)
        if found is not None:
            return test, "failed", _reason(found.get("message") or "")
    skipped = case.find("skipped")
    if skipped is None:
        return test, "passed", ""
    if skipped.get("type") == "pytest.xfail":
        return test, "xfailed", ""
    return test, "skipped", ""


def _reason(message: str) -> str:
    """The beginning of the message in one line, without addresses, which differ from run to run."""
    return re.sub(r" at 0x[0-9a-f]+", "", " ".join(message.split()))[:160]
