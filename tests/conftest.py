"""Which tests run where, for all of ``tests/``: by two marks and by folders.

``weekly``: with ``--weekly`` only. ``frameworks("torch", "jax")``: on a push under these alone,
and weekly under every framework. A folder named for a framework, such as ``tests/virtual/torch``,
is collected where that framework is tested: its files import it. A test that takes no framework
runs where NumPy is tested, once for all.

The frameworks themselves are chosen by the options of xdevice's pytest plugin, whose first user
is this suite: ``pytest --xdevice-backend=torch --xdevice-virtual-gpus=2``.
"""

from __future__ import annotations

import gc
import shutil
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

import xdevice
from xdevice.framework.adapters import registered
from xdevice.testing.frameworks import backends_of
from xdevice.testing.items import backend_of
from xdevice.virtual import plugins

HERE = Path(__file__).parent
MARKS = """
weekly: runs with --weekly only
frameworks(*names): on a push the test runs under these alone, with --weekly under all
"""


def pytest_addoption(parser):
    group = parser.getgroup("xdevice")
    group.addoption("--weekly", action="store_true", help="run also the tests marked weekly")


def pytest_configure(config):
    for mark in MARKS.strip().splitlines():
        config.addinivalue_line("markers", mark)
    for name in ("costs", "processes"):
        if not config.pluginmanager.has_plugin(name):
            spec = spec_from_file_location(name, HERE / f"{name}.py")
            plugin = module_from_spec(spec)
            spec.loader.exec_module(plugin)
            config.pluginmanager.register(plugin, name)
    if config.pluginmanager.has_plugin("hypothesispytest"):
        draw_the_same_examples(config)


def draw_the_same_examples(config):
    """Judge each change by the same examples; --hypothesis-profile=default draws others each time."""
    if config.getoption("--hypothesis-profile"):
        return
    from hypothesis import HealthCheck, settings

    settings.register_profile(
        "same",
        derandomize=True,
        max_examples=100 if config.getoption("--weekly") else 6,
        deadline=None,  # a busy machine breaks no promise
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("same")


def pytest_ignore_collect(collection_path, config):
    """Leave out the folders of frameworks that are not tested, without importing them."""
    frameworks = folders_of(collection_path)
    if frameworks and frameworks.isdisjoint(backends_of(config)):
        return True
    return None  # other plugins decide


def folders_of(path):
    """The frameworks that folders of a path in ``tests/`` are named for."""
    if not path.is_relative_to(HERE):  # a test of pytest itself, in a folder of its own
        return set()
    return set(registered()).intersection(path.relative_to(HERE).parts)


def pytest_collection_modifyitems(config, items):
    chosen = [item for item in items if runs(item, config)]
    if len(chosen) < len(items):
        config.hook.pytest_deselected(items=list(set(items) - set(chosen)))
        items[:] = chosen


def runs(item, config):
    """Whether the test runs under the frameworks that are tested, on a push or weekly."""
    weekly = config.getoption("--weekly")
    if item.get_closest_marker("weekly") and not weekly:
        return False
    if item.get_closest_marker("gpu") and "gpu" not in config.getoption("-m"):
        return False  # real ones: `-m gpu`, where there are any
    needs_gpus = item.get_closest_marker("multi_device") or "two_gpus" in getattr(
        item, "fixturenames", ()
    )
    if needs_gpus and backend_of(item) == "numpy":
        return False  # it has the CPU alone
    mark = item.get_closest_marker("frameworks")
    own = backend_of(item)
    if own is None:
        wanted = mark.args if mark else folders_of(item.path) or {"numpy"}
        tested = backends_of(config) or ["numpy"]  # where there is none, the core is tested
        return not set(wanted).isdisjoint(tested)
    return mark is None or weekly or own in mark.args


@pytest.fixture(scope="session")
def compiler():
    """The command of the C++ compiler that the test needs."""
    return plugins.compiler() or pytest.skip(f"needs a C++ compiler: {plugins.INSTALL}")


@pytest.fixture
def plug_in(request):
    """For a test whose framework needs its plug-in: skipped if it has none and cannot compile it."""
    frameworks = {backend_of(request.node)} - {None} or folders_of(request.path)
    for name in frameworks if plugins.compiler() is None else ():
        virtual = xdevice.backend(name).load_unprepared("virtual")
        recipe = virtual.recipe() if virtual.has("recipe") else None
        if recipe and not plugins.find(recipe):
            pytest.skip(f"needs a plug-in, and so a C++ compiler: {plugins.INSTALL}")


@pytest.fixture
def with_virtual_gpus(request):
    """For a test whose processes ask for virtual GPUs that need not stand in for real ones."""
    if backend_of(request.node) != "torch":  # only its stand-ins need a plug-in
        request.getfixturevalue("plug_in")


@pytest.fixture(scope="session")
def empty_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("empty")


@pytest.fixture(autouse=True)
def outside_the_checkout(request, empty_folder, monkeypatch):
    """Run each test in an empty folder: in the checkout, `python -c` would import its core.

    It is ``tmp_path`` for those that take one. The others share one: to make and to remove a folder
    for each would take as long as many of the tests.
    """
    own = "tmp_path" in request.fixturenames
    monkeypatch.chdir(request.getfixturevalue("tmp_path") if own else empty_folder)
    yield
    for left in empty_folder.iterdir():
        shutil.rmtree(left) if left.is_dir() else left.unlink()


@pytest.fixture(scope="session", autouse=True)
def frozen_modules():
    """Collect garbage, and look for tensors among all objects, without walking the frameworks' modules."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
