"""The examples of docstrings, under NumPy."""

import doctest
import pkgutil
from importlib import import_module

import pytest

import xdevice

BUILDINGS = ("xdevice.backends", "xdevice.virtual", "xdevice.tools", "xdevice._pyinstaller")
MODULES = [
    found.name
    for found in pkgutil.walk_packages(xdevice.__path__, "xdevice.")
    if not found.name.startswith(BUILDINGS) and not found.name.endswith("__main__")
]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_are_as_written(name, monkeypatch):
    monkeypatch.setenv("XDEVICE_BACKEND", "numpy")
    module = import_module(name)
    tests = doctest.DocTestFinder(exclude_empty=True).find(module)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    report = []
    for test in tests:
        runner.run(test, out=report.append)
    assert not runner.summarize(verbose=False).failed, "".join(report)
