"""Runs of pytest of their own, beside a framework that can have virtual GPUs and needs NumPy alone."""

import os
import sys
from pathlib import Path

import pytest

PAGES = Path(__file__).parents[1] / "third_party" / "xdevice-pages"
ENTRY_POINTS = """
[xdevice.backends]
pages = xdevice_pages
ghost = xdevice_ghost
broken = xdevice_broken
"""


@pytest.fixture
def run(pytester, monkeypatch):
    """Run pytest on the text of a test file, with `pages`, `ghost`, which is missing, and `broken` registered."""
    info = pytester.mkdir("site") / "xdevice_pages-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: xdevice-pages\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(ENTRY_POINTS, encoding="utf-8")
    (info.parent / "broken.py").write_text("raise OSError('libbroken.so is missing')\n", encoding="utf-8")
    (info.parent / "xdevice_broken.py").write_text("import broken\n", encoding="utf-8")
    for name in [name for name in os.environ if name.startswith(("XDEVICE", "PYTEST_ADDOPTS"))]:
        monkeypatch.delenv(name)
    path = [str(info.parent), str(PAGES), *filter(None, sys.path)]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))
    pytester.makeini("[pytest]\naddopts = --strict-markers -rs\n")

    def run(code, *options):
        pytester.makepyfile(test_it=code)
        fast = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest")  # which takes a second to load
        return pytester.runpytest_subprocess(*fast, *options, timeout=120)

    return run
