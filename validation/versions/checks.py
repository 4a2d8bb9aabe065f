"""What is run under a version of a framework: each check, and what came of it."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import environments
import tomllib
from environments import ROOT

README = "tests/docs/test_readme_example.py"
PROGRAMS = {
    "torch": "nanoGPT/defaults",
    "tensorflow": "TensorFlow/variable",
    "paddle": "Paddle/dynamic_graph",
    "mxnet": "MXNet/train_mnist",
    "jax": "JAX/autodiff_remat",
}
"""The row of validation/programs that stands for published programs, if possible one that takes two minutes."""


class Run(NamedTuple):
    """What came of a check: how many passed and were skipped, why each other failed, and what a table says of it."""

    passed: int
    skipped: int
    failures: dict[str, str]
    seconds: float
    error: str = ""  # why there is no outcome
    says: str = ""  # instead of the numbers

    @property
    def summary(self) -> str:
        if self.error or self.says:
            return self.error or self.says
        total = self.passed + len(self.failures)
        return f"{self.passed} of {total}" if self.failures else f"all {total}"

    @property
    def is_good(self) -> bool:
        return not self.error and not self.failures


class Tried(NamedTuple):
    """A version that is installed: the framework, its environment's Python, and the command's options."""

    name: str
    python: Path
    options: argparse.Namespace


def contract(tried: Tried) -> Run:
    """The tests, on the machine as it is."""
    return run_tests(tried, [*tried.options.tests.split(), *tried.options.pytest])


def virtual(tried: Tried) -> Run:
    """The tests, on virtual GPUs."""
    words = [*tried.options.tests.split(), *tried.options.pytest]
    return run_tests(tried, [f"--xdevice-virtual-gpus={tried.options.virtual_gpus}", *words])


def stand_in(tried: Tried) -> Run:
    """The tests, on virtual GPUs that stand in for real ones."""
    words = [*tried.options.tests.split(), *tried.options.pytest]
    return run_tests(
        tried, [f"--xdevice-virtual-gpus={tried.options.virtual_gpus}:stand-in", *words]
    )


def readme(tried: Tried) -> Run:
    """The README's examples."""
    return run_tests(tried, ["--weekly", README])


def names(tried: Tried) -> Run:
    """The private names that have gone, by the feature that needs them."""
    began = time.monotonic()
    command = [tried.python, "-m", "xdevice", "info", "--json", "--backend", tried.name]
    done = subprocess.run(
        command, cwd=tried.python.parent, env=alone(), capture_output=True, text=True, check=False
    )
    seconds = round(time.monotonic() - began, 1)
    try:
        answer = json.loads(done.stdout)["backends"][0]
        gone = answer["missing"]
    except (ValueError, KeyError):
        said = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
        return Run(0, 0, {}, seconds, f"xdevice info: {said[0]}")
    features = {each["feature"]: f"{each['reason']}; {each['cure']}" for each in gone}
    says = f"gone for {', '.join(features)}" if gone else "none gone"
    return Run(0, 0, features, seconds, says=says)


def program(tried: Tried) -> Run:
    """One published program, unedited, on virtual GPUs and on the CPU; left out where its repository is not reached."""
    name = PROGRAMS[tried.name]
    project = tomllib.loads(
        (ROOT / "validation/programs/programs.toml").read_text(encoding="utf-8")
    )[name.split("/")[0]]
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        checkout = Path(folder, project["repository"].replace("/", "+"))
        source = tried.options.program or f"https://github.com/{project['repository']}"
        git = ["git", "clone", "--quiet", source, checkout]
        cloned = subprocess.run(
            git, env={**os.environ, "GIT_TERMINAL_PROMPT": "0"}, capture_output=True, text=True
        )
        if cloned.returncode:
            why = " ".join(cloned.stderr.split())[:200]
            return Run(0, 1, {}, 0.0, says=f"left out: {name}: {why}; --program takes a clone")
        needs = project.get("needs", "").split()
        if needs and (why := environments.pip_install(tried.python, needs)):
            return Run(0, 0, {}, 0.0, f"{name}: {why}")
        command = [
            sys.executable,
            ROOT / "validation/programs/run.py",
            name,
            "--python",
            tried.python,
            "--folder",
            folder,
        ]
        done = subprocess.run(command, env=alone(), capture_output=True, text=True)
    if tried.options.verbose:
        print(done.stderr, file=sys.stderr)
    said = (
        done.stdout.strip().splitlines()[:1]
        or done.stderr.strip().splitlines()[-1:]
        or ["nothing was printed"]
    )
    says = " ".join(said[0].removeprefix("NOT AS IT SAYS").removeprefix("as it says").split())[:300]
    failures = {name: says} if done.returncode else {}
    return Run(1 - len(failures), 0, failures, round(time.monotonic() - began, 1), says=says)


CHECKS: dict[str, tuple[str, Callable[[Tried], Run]]] = {
    "contract": ("passed", contract),
    "virtual": ("on {gpus} virtual GPUs", virtual),
    "stand-in": ("standing in", stand_in),
    "names": ("private names", names),
    "readme": ("README", readme),
    "program": ("program", program),
}
"""The checks, in order, each with its column in the table."""


def checks_for(framework: str, asked: str) -> list[str]:
    """The checks that were asked for; NumPy has no virtual GPUs, and its adapter needs no private name."""
    left_out = {"virtual", "stand-in", "names", "program"} if framework == "numpy" else set()
    return [check for check in CHECKS if check in asked.split(",") and check not in left_out]


def alone(**more: str) -> dict[str, str]:
    """The environment without what somebody has asked xdevice for."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("XDEVICE_")}
    return {**kept, "TF_CPP_MIN_LOG_LEVEL": "2", "PYTHONDONTWRITEBYTECODE": "1", **more}


def run_tests(tried: Tried, words: list[Any]) -> Run:
    """Run tests under the framework, by the environment's pytest."""
    start, limit = time.monotonic(), tried.options.timeout
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        # The script and not `python -m pytest`, which would import xdevice from the checkout.
        command = [
            tried.python.parent / "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            f"--junitxml={report}",
        ]
        command += [f"--xdevice-backend={tried.name}", *words]
        output = None if tried.options.verbose else subprocess.DEVNULL
        try:
            done = subprocess.run(
                command,
                cwd=ROOT,
                env=alone(),
                stdout=output,
                stderr=output,
                timeout=limit,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Run(0, 0, {}, limit, f"not done after {limit:g} s")
        seconds = round(time.monotonic() - start, 1)
        if not report.exists():
            return Run(
                0,
                0,
                {},
                seconds,
                f"pytest ended with {done.returncode}; --verbose shows what it printed",
            )
        return read_report(report, seconds)


def read_report(report: Path, seconds: float) -> Run:
    """What pytest's report says of each test."""
    cases = list(ET.parse(report).iter("testcase"))
    if [case.get("name") for case in cases] == [
        "internal"
    ]:  # the framework or a plugin did not start
        return Run(0, 0, {}, seconds, reason_of(cases[0][0]))
    skipped = sum(case.find("skipped") is not None for case in cases)
    failures = {}
    for case in cases:
        found = [*case.findall("failure"), *case.findall("error")]
        if found:
            failures[case.get("name") or "collection"] = reason_of(found[0])
    return Run(len(cases) - skipped - len(failures), skipped, failures, seconds)


def reason_of(failure: ET.Element) -> str:
    """The error's message on one line; where the tests did not start, the last line that was printed."""
    message = failure.get("message") or ""
    if message in ("", "collection failure", "internal error"):
        message = (failure.text or "").strip().rpartition("\n")[2]
    return " ".join(message.split())[:300]
