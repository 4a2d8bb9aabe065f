"""The examples of docstrings, under NumPy."""

import doctest
import pkgutil
from importlib import import_module

import pytest

import xdevice
from xdevice import testing

BUILDINGS = ("xdevice.backends", "xdevice.virtual", "xdevice.tools")
# In a checkout, the path of xdevice ends with the folder of the checkout, which has xdevice again.
PLACES = {"xdevice.": xdevice.__path__[:1], "xdevice.testing.": testing.__path__}
MODULES = [
    name
    for name in {
        found.name: None
        for prefix, path in PLACES.items()
        for found in pkgutil.walk_packages(path, prefix)
    }
    if not name.startswith(BUILDINGS) and not name.endswith("__main__")
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
