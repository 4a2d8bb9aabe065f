"""Runs of pytest of their own, on a small library's tests, under the framework that is tested."""

import os
import sys
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

# `pytester` has an empty home, in which each run would compile the plug-ins anew
CACHE = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")

LIBRARY = """
import xdevice

def softmax(x, axis=-1, scale=1.0):
    xp = xdevice.namespace(x)
    e = xp.exp(x * scale - xp.max(x, axis=axis, keepdims=True))
    return e / xp.sum(e, axis=axis, keepdims=True)

def double(x, name="y"):
    return {name: x + x, "number": 3, "name": name}

def halves(x):
    return x / 2 if float(x[0]) > 0 else x

class Scale:
    def __init__(self, by): self.by = by
    def apply(self, x): return x * self.by
"""


@pytest.fixture
def run(pytester, backend, monkeypatch, in_a_fork):
    """Run pytest under the framework, on the text of a test file beside the library ``mylib``."""
    for name in [name for name in os.environ if name.startswith(("XDEVICE", "PYTEST_ADDOPTS"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CACHE_HOME", CACHE)
    pytester.makeini("[pytest]\naddopts = --strict-markers -rfsx\npythonpath = .\n")
    pytester.makepyfile(mylib=LIBRARY)

    def run(code, *options):
        pytester.makepyfile(test_it=code)
        fast = "-p", "no:cacheprovider", "-p", "no:hypothesispytest"
        arguments = [*fast, f"--xdevice-backend={backend}", *options]
        if backend != "numpy":
            return pytester.runpytest_subprocess(*arguments, timeout=900)
        given = dict(os.environ), str(pytester.path), [str(pytester.path), *sys.path], arguments
        done = in_a_fork("testing.prepared", f"from testing.prepared import run\nrun{given}")
        lines = done.stdout.splitlines(), done.stderr.splitlines()
        return pytest.RunResult(done.returncode, *lines, 0.0)

    return run
