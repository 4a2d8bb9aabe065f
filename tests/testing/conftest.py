"""Runs of pytest of their own, beside a framework that can have virtual GPUs and needs NumPy alone."""

import os
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

PAGES = Path(__file__).parents[1] / "third_party" / "xdevice-pages"
ENTRY_POINTS = """
[xdevice.backends]
pages = xdevice_pages
ghost = xdevice_ghost
broken = xdevice_broken
gpus_alone = xdevice_gpus_alone
"""
GPUS_ALONE = """
def build(): return {"version": "1.5", "compute": "cuda", "toolkit": "12.9"}
def kinds(): return ("gpu",)
def count(kind): return 0
"""


@pytest.fixture
def run_pytest(pytester, in_a_fork):
    """Run pytest in a fork of a process that has imported it, xdevice's plugin and NumPy."""

    def run(*arguments):
        start, folder = time.monotonic(), pytester.mkdir(f"run-{time.monotonic_ns()}")
        path = [str(pytester.path), *os.environ["PYTHONPATH"].split(os.pathsep)]
        arguments = [f"--basetemp={folder / 'temporary'}", *map(str, arguments)]
        given = dict(os.environ), str(pytester.path), path, arguments
        program = f"from testing.prepared import run\nrun{given}"
        done = in_a_fork("testing.prepared", program)
        print(done.stdout, done.stderr)  # pytest shows it beside a failure
        lines = done.stdout.splitlines(), done.stderr.splitlines()
        return pytest.RunResult(done.returncode, *lines, time.monotonic() - start)

    return run


@pytest.fixture
def run(pytester, run_pytest, monkeypatch):
    """Run pytest on the text of a test file, with other frameworks registered.

    They are `pages`, `ghost`, which is missing, `broken`, and `gpus_alone`, which has no device.
    """
    info = pytester.mkdir("site") / "xdevice_pages-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: xdevice-pages\nVersion: 1.0\n", encoding="utf-8"
    )
    (info / "entry_points.txt").write_text(ENTRY_POINTS, encoding="utf-8")
    (info.parent / "broken.py").write_text(
        "raise OSError('libbroken.so is missing')\n", encoding="utf-8"
    )
    (info.parent / "xdevice_broken.py").write_text("import broken\n", encoding="utf-8")
    (info.parent / "gpus_alone.py").write_text("", encoding="utf-8")
    adapter = pytester.mkdir("site/xdevice_gpus_alone")
    (adapter / "__init__.py").write_text("import gpus_alone\n", encoding="utf-8")
    (adapter / "hardware.py").write_text(GPUS_ALONE, encoding="utf-8")
    for name in [name for name in os.environ if name.startswith(("XDEVICE", "PYTEST_ADDOPTS"))]:
        monkeypatch.delenv(name)
    path = [str(info.parent), str(PAGES), *filter(None, sys.path)]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))
    pytester.makeini("[pytest]\naddopts = --strict-markers -rs\n")

    def run(code, *options, fork=True):
        pytester.makepyfile(test_it=code)
        fast = (
            "-p",
            "no:cacheprovider",
            "-p",
            "no:hypothesispytest",
        )  # which takes a second to load
        if fork and not any(option.startswith("-n") for option in options):
            return run_pytest(*fast, *options)
        return pytester.runpytest_subprocess(*fast, *options, timeout=120)

    return run


@pytest.fixture(
    params=[
        pytest.param((), id="alone"),
        pytest.param(("-n2",), id="xdist", marks=pytest.mark.weekly),
    ]
)
def workers(request):
    """pytest's options for one process, and for two of pytest-xdist."""
    if request.param and find_spec("xdist") is None:
        pytest.skip("pytest-xdist is not installed")
    return request.param
