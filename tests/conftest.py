"""Every test that takes the ``backend`` fixture runs once for each framework asked for.

``--backend=torch,numpy`` asks for those, ``--backend=all`` for all that are registered; a framework that
is asked for and missing is an error. ``--backend=installed``, the default, takes what is there.
``@pytest.mark.needs("model")`` keeps a promise to the frameworks whose file in ``tests/native`` has that
function.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

import xdevice
from xdevice.registry import is_installed, registered

HERE = Path(__file__).parent
_loaded: dict[str, object] = {}


def pytest_addoption(parser):
    parser.addoption("--backend", default="installed", help="frameworks to test: a,b or all or installed")


def pytest_configure(config):
    config.addinivalue_line("markers", "needs(name): the framework's tests/native file has that function")
    config.addinivalue_line("markers", "not_theirs: no framework asked for can have it")
    config.addinivalue_line("markers", "gpu(n=1): needs n real GPUs under the framework")
    asked = config.getoption("--backend")
    groups = {"installed": xdevice.available, "all": lambda: list(registered())}
    names = groups[asked]() if asked in groups else [n for n in asked.split(",") if n]
    unknown = [n for n in names if n not in registered()]
    missing = [n for n in names if n not in unknown and not is_installed(n)]
    if unknown or missing:
        raise pytest.UsageError(
            f"--backend={asked}: "
            + "; ".join([f"unknown: {n}" for n in unknown] + [f"not installed: {n}" for n in missing])
        )
    config.backends = names


# a framework's own tests are collected where it is tested
def pytest_ignore_collect(collection_path, config):
    name = collection_path.stem.removeprefix("test_")
    return True if collection_path.parent.name == "quirks" and name not in ["quirks", *config.backends] else None


def pytest_generate_tests(metafunc):
    if "backend" in metafunc.fixturenames:
        needed = [mark.args[0] for mark in metafunc.definition.iter_markers("needs")]
        names = [n for n in metafunc.config.backends if all(hasattr(load_native(n), need) for need in needed)]
        if names or not needed:
            metafunc.parametrize("backend", names, indirect=True)
        else:  # none of the frameworks asked for can have this promise: not a test of theirs
            metafunc.parametrize("backend", [pytest.param(None, marks=pytest.mark.not_theirs)])


def pytest_collection_modifyitems(config, items):
    theirs = [item for item in items if item.get_closest_marker("not_theirs") is None]
    if len(theirs) != len(items):
        config.hook.pytest_deselected(items=[item for item in items if item not in theirs])
        items[:] = theirs


def pytest_runtest_setup(item):
    mark = item.get_closest_marker("gpu")
    if mark is not None:
        wanted = mark.args[0] if mark.args else 1
        with xdevice.using(item.callspec.params["backend"]):
            seen = xdevice.count("gpu")
        if seen < wanted:
            pytest.skip(f"needs {wanted} real GPUs, {item.callspec.params['backend']} sees {seen}")


@pytest.fixture(autouse=True)
def outside_the_checkout(tmp_path, monkeypatch):
    """In the checkout, `python -c` would import the core from there, and not the package that is installed."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def backend(request):
    """A framework's name; the framework is chosen while the test runs."""
    with xdevice.using(request.param):
        yield request.param


@pytest.fixture
def native(backend):
    """What the tests must know of the framework's own words: the module tests/native/NAME.py."""
    return load_native(backend)


def load_native(name):
    if name not in _loaded:
        _ = xdevice.backend(name).framework  # imported safely, whatever else is in the process
        spec = importlib.util.spec_from_file_location(f"native_{name}", HERE / "native" / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        _loaded[name] = module
    return _loaded[name]
