"""Run the contract suite under several versions of a framework, and print a table of what passed.

    python tests/versions/run.py numpy 1.23.5 1.26.4 newest
    python tests/versions/run.py jax oldest --with numpy==1.26.4 --virtual-gpus 2
    python tests/versions/run.py torch 2.4.1 --python python3.12 --venvs ~/venvs --json torch.json -- -k scope

Each version gets a virtual environment of its own, with the framework, the framework's own requirements, pytest and a
wheel made from this checkout. ``oldest`` is the lowest version that pyproject.toml admits, ``newest`` the newest that
pip finds. A version that does not install has pip's reason in its row. The exit status is 1 if a test failed or a
version did not install. It needs rich: ``pip install rich``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import tomllib
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]

PACKAGES = {
    "torch": "torch",
    "tensorflow": "tensorflow-cpu",
    "paddle": "paddlepaddle",
    "mxnet": "mxnet",
    "jax": "jax",
    "numpy": "numpy",
}
"""The package that is installed for a framework: the build for the CPU, where it is a package of its own."""

# A version is admitted by the first line whose bound is above it; `None` is above all.
NEEDS: dict[str, list[tuple[str | None, tuple[str, ...]]]] = {
    "torch": [("2.3", ("numpy<2",)), (None, ("numpy",))],
    "tensorflow": [(None, ("setuptools",))],
    # 2.6 is compiled against NumPy 1, and imports setuptools without requiring it.
    "paddle": [("3", ("numpy<2", "setuptools<81")), (None, ("setuptools",))],
    # Uses numpy.bool, which NumPy 1.24 removed.
    "mxnet": [(None, ("numpy<1.24",))],
    "jax": [(None, ())],
    "numpy": [(None, ())],
}
"""What a version needs beyond what its own package requires, or in a narrower range."""

SUITE = (
    "pytest>=8",
    "optree>=0.13",
    "safetensors>=0.8",
    "hypothesis>=6",
    "array-api-compat>=1.11",
    "array-api-strict>=2.4",
)

console = Console(stderr=True, highlight=False)


class Run(NamedTuple):
    """What came of one run of the suite: how many tests passed and were skipped, and why each other failed."""

    passed: int
    skipped: int
    failures: dict[str, str]
    seconds: float
    error: str = ""

    @property
    def summary(self) -> str:
        if self.error:
            return self.error
        total = self.passed + len(self.failures)
        return f"{self.passed} of {total}" if self.failures else f"all {total}"


def numbers(version: str) -> tuple[int, ...]:
    """The numbers that the version begins with, to compare: 2.15.0.post1 is (2, 15, 0)."""
    return tuple(int(part) for part in re.match(r"\d+(?:\.\d+)*", version)[0].split("."))


def lowest(name: str) -> str:
    """The lowest version that the package's extra admits."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    package = re.compile(rf"{PACKAGES[name].removesuffix('-cpu')}>=([\d.]+)")
    return next(match[1] for line in project["optional-dependencies"][name] if (match := package.match(line)))


def wanted(name: str, version: str) -> list[str]:
    """What pip is asked for: the framework in this version, and what it needs."""
    if version == "newest":
        return [PACKAGES[name], *NEEDS[name][-1][1]]
    needs = next(needs for bound, needs in NEEDS[name] if bound is None or numbers(version) < numbers(bound))
    return [f"{PACKAGES[name]}=={version}", *needs]


def make_wheel(folder: Path) -> Path:
    """A wheel of the checkout, built from a copy: setuptools leaves a folder behind in what it builds from."""
    source = folder / "source"
    without = shutil.ignore_patterns("__pycache__")
    for name in ("xdevice", "backends"):
        shutil.copytree(ROOT / name, source / name, ignore=without)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, source]
    subprocess.run(command, check=True)
    return next(folder.glob("*.whl"))


def install(python: Path, packages: list[str], wheel: Path) -> str:
    """Install them; what pip says of it if it cannot, and else nothing.

    The wheel comes without the range that it asks for: whether that is right is what is being tried.
    """
    for command in (
        [f"--only-binary={packages[0].partition('=')[0]}", *packages, *SUITE],  # none is built from its source
        ["--no-deps", "--force-reinstall", str(wheel)],
    ):
        pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-warn-conflicts", *command]
        done = subprocess.run(pip, capture_output=True, text=True, check=False)
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR:")]
            return min(errors or done.stderr.splitlines()[-1:] or ["pip failed"], key=len)
    return ""


def installed(python: Path, names: list[str]) -> dict[str, str]:
    """The installed versions of these packages, and Python's."""
    code = """
import importlib.metadata as metadata, json, platform, sys
found = {"python": platform.python_version()}
for name in sys.argv[1:]:
    try:
        found[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        pass
print(json.dumps(found))
"""
    return json.loads(subprocess.check_output([python, "-c", code, *names], text=True))


def run_suite(python: Path, name: str, options: argparse.Namespace, gpus: int) -> Run:
    """Run the tests under the framework on that many virtual GPUs; 0 is the machine as it is."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        # The script and not `python -m pytest`, which would import xdevice from the checkout.
        command = [python.parent / "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
        command += [f"--xdevice-backend={name}", *[f"--xdevice-virtual-gpus={gpus}"] * (gpus > 0)]
        command += [*options.tests.split(), *options.pytest]
        output = None if options.verbose else subprocess.DEVNULL
        env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "PYTHONDONTWRITEBYTECODE": "1"}
        limit = options.timeout
        try:
            done = subprocess.run(command, cwd=ROOT, env=env, stdout=output, stderr=output, timeout=limit, check=False)
        except subprocess.TimeoutExpired:
            return Run(0, 0, {}, limit, f"not done after {limit:g} s")
        seconds = round(time.monotonic() - start, 1)
        if not report.exists():
            return Run(0, 0, {}, seconds, f"pytest ended with {done.returncode}; --verbose shows what it printed")
        return read_report(report, seconds)


def read_report(report: Path, seconds: float) -> Run:
    """What pytest's report says of each test."""
    cases = list(ET.parse(report).iter("testcase"))
    if [case.get("name") for case in cases] == ["internal"]:  # the framework or a plugin did not start
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


def try_version(name: str, version: str, options: argparse.Namespace, wheel: Path, venvs: Path) -> dict[str, Any]:
    """One version's row: what was installed, and what came of each run."""
    version = lowest(name) if version == "oldest" else version
    packages = [*wanted(name, version), *options.packages]
    folder = venvs / "-".join([Path(options.python).name, *(re.sub(r"[^\w.]+", "_", word) for word in packages)])
    python = folder / "bin" / "python"
    row: dict[str, Any] = {"framework": name, "asked": version, "with": options.packages, "runs": {}}
    with progress(f"{name} {version}: installing {' '.join(packages)}"):
        if not python.exists():
            subprocess.run([options.python, "-m", "venv", "--without-pip", folder], check=True)
        row["error"] = install(python, packages, wheel)
    if row["error"]:
        console.print(f"{name} {version}: {row['error']}", markup=False, soft_wrap=True)
    else:
        row["installed"] = installed(python, [PACKAGES[name], "numpy", "keras", *map(bare, options.packages)])
        row["runs"]["cpu"] = tests_of(python, name, version, options, 0)
        if options.virtual_gpus:
            row["runs"]["virtual"] = tests_of(python, name, version, options, options.virtual_gpus)
    if options.venvs is None:
        shutil.rmtree(folder)
    return row


def tests_of(python: Path, name: str, version: str, options: argparse.Namespace, gpus: int) -> dict[str, Any]:
    """What came of one run, shown as it comes."""
    with progress(f"{name} {version}: {options.tests}" + f" on {gpus} virtual GPUs" * (gpus > 0)):
        run = run_suite(python, name, options, gpus)
    console.print(f"{name} {version}: {run.summary} in {run.seconds:.0f} s", markup=False)
    for message, count in Counter(run.failures.values()).most_common(20):
        first = next(test for test in run.failures if run.failures[test] == message)
        console.print(f"    {count} × {message} ({first})", markup=False, soft_wrap=True)
    return run._asdict()


def bare(package: str) -> str:
    """The package's name, without the version."""
    return re.match(r"[\w.-]+", package)[0]


@contextlib.contextmanager
def progress(text: str) -> Iterator[None]:
    """A spinner while it lasts; a line, where the output is a file."""
    if console.is_terminal:
        with console.status(text):
            yield
    else:
        console.print(text, markup=False, soft_wrap=True)
        yield


def table_of(rows: list[dict[str, Any]], gpus: int) -> Table:
    """The rows as they are shown."""
    table = Table("framework", "version", "Python", "NumPy", "passed", *[f"on {gpus} virtual GPUs"] * (gpus > 0))
    for row in rows:
        found = row.get("installed", {})
        words = [found.get(PACKAGES[row["framework"]], row["asked"])]
        words += [f"{name} {found.get(name, '')}" for name in map(bare, row["with"]) if name != "numpy"]
        runs = [Run(**run).summary for run in row["runs"].values()] or [row["error"]]
        table.add_row(row["framework"], " + ".join(words), found.get("python", ""), found.get("numpy", ""), *runs)
    return table


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("framework", choices=PACKAGES)
    add("versions", nargs="+", help="such as 2.4.1; oldest: the lowest that pyproject.toml admits; newest: the newest")
    add("--python", default=sys.executable, help="the interpreter (this one)")
    add("--with", dest="packages", action="append", default=[], metavar="PACKAGE", help="also install: numpy==1.26.4")
    add("--venvs", type=Path, help="keep the environments in this folder, and use them again (a temporary one)")
    add("--virtual-gpus", type=int, default=0, metavar="N", help="run the tests on N virtual GPUs as well")
    add("--tests", default="tests/contract", help="files and folders, relative to the repository (tests/contract)")
    add("--timeout", type=float, default=1800.0, help="seconds for each run (1800)")
    add("--json", type=Path, metavar="FILE", help="write all rows, with the reason of each failure")
    add("--verbose", action="store_true", help="show what pytest prints")
    words = sys.argv[1:]
    cut = words.index("--") if "--" in words else len(words)
    options = parser.parse_args(words[:cut])
    options.pytest = words[cut + 1 :]
    return options


def main() -> int:
    options = parsed()
    with tempfile.TemporaryDirectory() as folder:
        wheel = make_wheel(Path(folder))
        venvs = (options.venvs or Path(folder)).absolute()
        rows = [try_version(options.framework, v, options, wheel, venvs) for v in options.versions]
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    Console().print(table_of(rows, options.virtual_gpus))
    runs = [run for row in rows for run in row["runs"].values()]
    return int(any(row["error"] for row in rows) or any(run["failures"] or run["error"] for run in runs))


if __name__ == "__main__":
    sys.exit(main())
