"""Our own suite is the first user of xdevice's pytest plugin, and adds what only it needs.

Run ``pytest --xdevice-backend=torch,numpy``: see ``testing/plugin.py``. The marks below
choose which tests run under which frameworks, and which run only with ``--weekly``.

Some files are chosen by their path, because importing them imports a framework: a framework's own
tests are collected where it is tested; those of ``tests/virtual`` where there are virtual GPUs;
those of ``tests/quirks``, which assume a machine without a GPU, where there are none.

A test that a machine without a C++ compiler cannot run takes the fixture ``compiler`` or
``plug_in``: it is skipped there, and the last lines of the run count it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from functools import cache
from pathlib import Path

import pytest

import xdevice
from xdevice.testing import words_in
from xdevice.testing.frameworks import backends_of
from xdevice.virtual import plugins

HERE = Path(__file__).parent

MARKS = """
needs(name): the framework's file in tests/native has a function of that name
only_under(*frameworks, weekly=None): runs under these alone; weekly='all': not with --weekly
one_engine: tests what the core does between processes; one framework's engine stands for all
weekly(under=(), but=()): needs --weekly under these frameworks (all), but for these parameters
"""
ENGINE = "paddle"  # whose engine stands for all
FRAMEWORKS = {"torch", "tensorflow", "paddle", "mxnet", "jax"}
ADAPTERS = {*FRAMEWORKS, "numpy", "cupy", "array_api_strict"}
# In these folders, a test that takes no framework runs under NumPy alone, once.
RUN_ONCE = {"maths", "transfers", "examples", "distributed"}
SLOW_IMPORTS = {"test_libraries.py"}  # files that import much, and run with --weekly
WITHOUT_PLUG_IN = {"torch"}  # whose virtual GPUs need a plug-in only to stand in for real ones


def pytest_addoption(parser):
    help_text = "run also the tests marked weekly, and those marked one_engine under all frameworks"
    parser.getgroup("xdevice").addoption("--weekly", action="store_true", help=help_text)


def pytest_configure(config):
    for mark in MARKS.strip().splitlines():
        config.addinivalue_line("markers", mark)
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
        max_examples=100 if config.getoption("--weekly") else 12,
        deadline=None,  # a busy machine breaks no promise
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("same")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Fail a test that was skipped for want of a compiler although there is one."""
    report = yield
    if report.skipped and "C++ compiler" in str(report.longrepr) and plugins.compiler() is not None:
        reason = report.longrepr[-1]
        report.outcome = "failed"
        report.longrepr = f"there is a C++ compiler, and the test was skipped: {reason}"
    return report


def pytest_ignore_collect(collection_path, config):
    """Leave out the files of frameworks that are not tested, without importing them."""
    if collection_path.name.startswith("test_") and not is_collected(collection_path, config):
        return True
    return None  # other plugins decide


def is_collected(path, config):
    folder = top_folder(path)
    if path.name in SLOW_IMPORTS and not config.getoption("--weekly"):
        return False
    if folder == "virtual" and path.name == "test_together.py":
        return len(backends_of(config)) > 1
    if folder in ("quirks", "virtual") and has_virtual_gpus(config) != (folder == "virtual"):
        return False
    frameworks = frameworks_of_path(path)
    return not frameworks or not frameworks.isdisjoint(backends_of(config))


def has_virtual_gpus(config):
    """Whether this run asks for virtual GPUs."""
    request = config.getoption("--xdevice-virtual-gpus")
    if not request:
        request = os.environ.get("XDEVICE_VIRTUAL_GPUS", "")
    return request not in ("", "0")


def top_folder(path):
    """The folder of ``tests/`` that a file is in."""
    return path.relative_to(HERE).parts[0] if path.is_relative_to(HERE) else ""


def frameworks_of_path(path):
    """The frameworks that a file's path names; the empty set if it names none."""
    folder = top_folder(path)
    name = path.stem.removeprefix("test_").removeprefix("copies_")
    if folder == "quirks":
        return {adapter for adapter in ADAPTERS if adapter in name}
    if folder == "virtual":
        return FRAMEWORKS.intersection(path.relative_to(HERE).parts) or FRAMEWORKS
    if folder in ("distributed", "transfers"):
        return FRAMEWORKS & {name}
    return set()


def pytest_collection_modifyitems(config, items):
    weekly = config.getoption("--weekly")
    chosen = [
        item
        for item in items
        if has_native_functions(item)
        and runs_under_tested_framework(item, config)
        and (weekly or (stands_for_all_engines(item) and not is_weekly(item)))
    ]
    if len(chosen) < len(items):
        config.hook.pytest_deselected(items=list(set(items) - set(chosen)))
        items[:] = chosen


def has_native_functions(item):
    """Whether the framework has the functions that the marks ``needs`` name."""
    return all(
        hasattr(words_in(HERE / "native", framework_of(item)), mark.args[0])
        for mark in item.iter_markers("needs")
    )


def runs_under_tested_framework(item, config):
    """Whether one of the frameworks tested is one that the test runs under."""
    frameworks = frameworks_of(item)
    if not frameworks and framework_of(item) is None and top_folder(item.path) in RUN_ONCE:
        frameworks = {"numpy"}
    return not frameworks or not frameworks.isdisjoint(backends_of(config))


def frameworks_of(item):
    """The frameworks that the test runs under; the empty set for all of them."""
    mark = item.get_closest_marker("only_under")
    if mark is None:
        return frameworks_of_path(item.path)
    if mark.kwargs.get("weekly") == "all" and item.config.getoption("--weekly"):
        return set()
    return set(mark.args)


def framework_of(item):
    """The framework that is the test's parameter, or ``None``."""
    return item.callspec.params.get("xdevice_backend") if hasattr(item, "callspec") else None


def stands_for_all_engines(item):
    """Whether the test runs without ``--weekly`` if it is marked ``one_engine``.

    It does under NumPy, too: NumPy has no engine, and its error says so.
    """
    return item.get_closest_marker("one_engine") is None or framework_of(item) in (ENGINE, "numpy")


def is_weekly(item):
    mark = item.get_closest_marker("weekly")
    if mark is None:
        return False
    frameworks = as_tuple(mark.kwargs.get("under", ()))
    if frameworks and framework_of(item) not in frameworks:
        return False
    test_id = f"-{item.callspec.id}-" if hasattr(item, "callspec") else ""
    return not any(f"-{name}-" in test_id for name in as_tuple(mark.kwargs.get("but", ())))


def as_tuple(names):
    return (names,) if isinstance(names, str) else names


@pytest.fixture(scope="session")
def compiler():
    """The command of the C++ compiler that the test needs."""
    return plugins.compiler() or pytest.skip(f"needs a C++ compiler: {plugins.INSTALL}")


@pytest.fixture
def plug_in(request):
    """For a test whose framework needs its plug-in: skipped if it has none and cannot compile it."""
    framework = framework_of(request.node)
    frameworks = {framework} if framework else frameworks_of(request.node)
    if not all(map(has_plug_in, frameworks)):
        pytest.skip(f"needs a plug-in, and so a C++ compiler: {plugins.INSTALL}")


@pytest.fixture
def with_virtual_gpus(request):
    """For a test whose processes ask for virtual GPUs that need not stand in for real ones."""
    if framework_of(request.node) not in WITHOUT_PLUG_IN:
        request.getfixturevalue("plug_in")


@cache
def has_plug_in(framework):
    """Whether the virtual GPUs of the framework need no plug-in, have it, or can compile it."""
    if plugins.compiler() is not None:
        return True
    virtual = xdevice.backend(framework).load("virtual")
    recipe = virtual.recipe() if virtual.has("recipe") else None
    return recipe is None or plugins.find(recipe) is not None


@pytest.fixture(autouse=True)
def outside_the_checkout(tmp_path, monkeypatch):
    """Run each test in an empty folder: in the checkout, `python -c` would import its core."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def with_ctrl_c():
    """The words before a command that make it receive Ctrl-C and SIGHUP.

    Tests that run in the background ignore these signals, and their child processes would, too.
    """
    code = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
os.execvp(sys.argv[1], sys.argv[1:])
"""
    return [sys.executable, "-c", code]


TOY = {
    "toy.py": "class Tensor: pass\n__version__ = '1'\n",
    "xdevice_toy/__init__.py": "import toy\nCANNOT = {'synchronize': 'a toy never works'}\n",
    "xdevice_toy/hardware.py": """
        from xdevice import Device
        gpus = 0
        def kinds(): return ("cpu", "gpu")
        def count(kind): return gpus if kind == "gpu" else int(kind == "cpu")
        def native(device): return "toy-cpu" if device.kind == "cpu" else f"toy-gpu{device.index} of {gpus}"
        def properties(device): return {"virtual": False}
        def scope(device):
            from contextlib import nullcontext
            return nullcontext()
    """,
    "xdevice_toy/virtual.py": """
        import os, xdevice, xdevice_toy.hardware as hardware
        def enable(n, force, stand_in):
            if "TOO_LATE" in os.environ:
                raise xdevice.VirtualDeviceError("the toy has been played with")
            if "REAL" in os.environ and not force:
                raise xdevice.VirtualDeviceError("there is a real toy")
            print("enabled", n, force, *["stand-in"] * stand_in)
            hardware.gpus = n
    """,
    "xdevice_toy/mixing.py": """
        from contextlib import contextmanager
        @contextmanager
        def forbid():
            print("watching")
            yield
            print("not watching")
    """,
    "xdevice_toy/placement.py": """
        import toy
        from xdevice import Device
        def category(cls): return "tensor" if issubclass(cls, toy.Tensor) else None
        def device_of(x): return Device("cpu")
    """,
    "xdevice_toy-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: xdevice-toy\nVersion: 1\n",
    "xdevice_toy-1.dist-info/entry_points.txt": """
        [xdevice.backends]
        toy = xdevice_toy
        ghost = xdevice_ghost
        broken = xdevice_broken
    """,
    "broken.py": "raise OSError('libbroken.so: cannot open shared object file')\n",
    "xdevice_broken/__init__.py": "import broken\n",
    "halfway.py": "import a_module_that_nobody_has\n",
}


@pytest.fixture
def toy_path(tmp_path):
    """A folder with a toy framework and its adapter, registered by an entry point."""
    for name, text in TOY.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(textwrap.dedent(text))
    return tmp_path


@pytest.fixture
def run(toy_path, tmp_path):
    """A function that runs code in a new process, which can use the toy framework."""

    def run(code, **env):
        path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
        clean = {k: v for k, v in os.environ.items() if not k.startswith("XDEVICE")}
        process = subprocess.run(
            [sys.executable, "-c", "import xdevice\n" + textwrap.dedent(code)],
            capture_output=True,
            text=True,
            timeout=300,
            env={**clean, "PYTHONPATH": path, **env},
            cwd=tmp_path,
        )
        assert process.returncode == 0, process.stderr
        return process.stdout.strip()

    return run
