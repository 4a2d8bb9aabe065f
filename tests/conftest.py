"""Our own suite is the first user of xdevice's pytest plugin, and adds what only it needs.

Run ``pytest --xdevice-backend=torch,numpy``: see ``xdevice/testing/plugin.py``. A framework's own tests are
collected where it is tested; those of virtual GPUs where there are some, and those that assume a machine
without a GPU where there are none. ``@pytest.mark.needs("model")`` keeps a test to the frameworks whose file in
``tests/native`` has that function. ``@pytest.mark.weekly`` is for what takes long and shows little that other tests
do not: it runs with ``--weekly``, and ``but=`` names the parameters with which it always runs. What a machine without a
C++ compiler cannot run takes the fixture ``compiler`` or ``plug_in``: it is skipped there, and the last lines count it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest

import xdevice
from xdevice.testing import words_in
from xdevice.testing.frameworks import backends_of
from xdevice.virtual import plugins

HERE = Path(__file__).parent

# How processes meet: no framework takes part.
SAME_EVERYWHERE = {
    "acceptor",
    "at_exit",
    "barrier",
    "coordinator",
    "fuzz",
    "shared_memory",
    "token",
}
# Of these folders, a test that takes no framework runs under NumPy alone, once.
ONCE = {"maths", "transfers", "examples", "distributed"}
FOR_ANY = {"core", "report", "rules"}  # of transfers, where nothing is copied
WITH_LISTS = {
    "torch",
    "tensorflow",
    "paddle",
    "mxnet",
    "jax",
}  # of the private names that virtual GPUs replace
# What the core does between processes: one engine stands for all, and with --weekly none does.
ENGINE = "paddle"
ONE_ENGINE = dict.fromkeys(("explicit", "files", "restarts"), ENGINE)
RECIPES = {"clusters": "torch"}  # whose packages are installed there only
# Promises that a push leaves out, by parts of their names: TensorFlow's allocator waits ten seconds for memory, and JAX
# compiles for each number of devices.
WEEKLY = {
    "tensorflow": ("huge",),
    "jax": ("-one]", "-three]", "-four]", "-twice]", "sum_over_rows", "step_gradients"),
}
IN_PYTHON = {"torch"}  # whose virtual GPUs work without their plug-in, if they need not stand in
LONG_TO_IMPORT = {"libraries"}  # which a push leaves to the week

NO_PARAMETERS = SimpleNamespace(params={}, id="")


def pytest_addoption(parser):
    text = "also what is marked so, and what one engine stands for in other runs"
    parser.getgroup("xdevice").addoption("--weekly", action="store_true", help=text)


def pytest_configure(config):
    config.addinivalue_line(
        "markers", "needs(name): the framework's tests/native file has that function"
    )
    config.addinivalue_line(
        "markers", "weekly(but=()): takes long; with --weekly, or with parameters of these names"
    )
    config.addinivalue_line(
        "markers", "one_engine: what the core does between processes, whichever the engine"
    )
    # A change is judged by the same examples as the one before it; --hypothesis-profile=default draws others each time.
    if config.pluginmanager.has_plugin("hypothesispytest") and not config.getoption(
        "--hypothesis-profile"
    ):
        from hypothesis import HealthCheck, settings

        slow = {
            "deadline": None,
            "suppress_health_check": [HealthCheck.too_slow],
        }  # a busy machine breaks no promise
        number = 100 if config.getoption("--weekly") else 25
        settings.register_profile("same", derandomize=True, max_examples=number, **slow)
        settings.load_profile("same")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Where there is a compiler, nothing is skipped for want of one."""
    report = yield
    if report.skipped and "C++ compiler" in str(report.longrepr) and plugins.compiler() is not None:
        report.outcome, report.longrepr = (
            "failed",
            f"there is a C++ compiler, and yet: {report.longrepr[-1]}",
        )
    return report


def engines_of(config):
    """The one engine that a file is run under, where it is one."""
    return RECIPES if config.getoption("--weekly") else RECIPES | ONE_ENGINE


def pytest_ignore_collect(collection_path, config):
    if not collection_path.name.startswith("test_"):
        return None
    folder, within, name = parts_of(collection_path)
    if name in LONG_TO_IMPORT and not config.getoption("--weekly"):
        return True
    if folder == "virtual" and name == "together":
        return True if len(backends_of(config)) == 1 else None
    asked = config.getoption("--xdevice-virtual-gpus") or os.environ.get("XDEVICE_VIRTUAL_GPUS", "")
    virtual = asked not in ("", "0")
    if folder in ("quirks", "virtual") and virtual != (folder == "virtual"):
        return True
    only = frameworks_of(folder, within, name, config)
    return True if only and only.isdisjoint(backends_of(config)) else None


def parts_of(path):
    """The folder of ``tests/`` that a file is in, the one in that, and the file's name without ``test_``."""
    folders = path.relative_to(HERE).parts[:-1] if path.is_relative_to(HERE) else ()
    folder, within, *_ = (*folders, "", "")
    return folder, within, path.stem.removeprefix("test_")


def frameworks_of(folder, within, name, config):
    """The frameworks that a file is run under; none for all of them."""
    if folder == "distributed" and name in SAME_EVERYWHERE:
        return {"numpy"}
    if folder == "distributed" and name in engines_of(config):
        return {engines_of(config)[name]}
    if folder == "transfers" and name in FOR_ANY:
        return {"numpy"}
    if folder == "virtual":
        return {within} if within else WITH_LISTS
    if folder == "quirks":
        return {name.partition("_")[0]}
    return {name} if name in WITH_LISTS and folder in ("distributed", "transfers") else set()


def pytest_collection_modifyitems(config, items):
    theirs = [
        item
        for item in items
        if all(has(item, mark.args[0]) for mark in item.iter_markers("needs"))
    ]
    theirs = [item for item in theirs if not is_numpys(item, config)]
    if not config.getoption("--weekly"):
        theirs = [
            item
            for item in theirs
            if not item.get_closest_marker("one_engine") or stands_for_all(item)
        ]
        theirs = [item for item in theirs if not is_for_the_week(item)]
    if len(theirs) < len(items):
        config.hook.pytest_deselected(items=list(set(items) - set(theirs)))
        items[:] = theirs


def is_numpys(item, config):
    """Whether the test takes no framework, and has its run in NumPy's environment."""
    folder, within, name = parts_of(item.path)
    name = name.removeprefix("copies_")
    if (
        folder not in ONCE
        or "numpy" in backends_of(config)
        or frameworks_of(folder, within, name, config)
    ):
        return False
    return "xdevice_backend" not in getattr(item, "callspec", NO_PARAMETERS).params


def stands_for_all(item):
    """NumPy, too: it has none, and says so."""
    return item.callspec.params["xdevice_backend"] in (ENGINE, "numpy")


def is_for_the_week(item):
    given = f"-{getattr(item, 'callspec', NO_PARAMETERS).id}-"
    if any(
        f"-{backend}-" in given and word in item.name
        for backend, words in WEEKLY.items()
        for word in words
    ):
        return True
    mark = item.get_closest_marker("weekly")
    but = mark.kwargs.get("but", ()) if mark else ()
    return mark is not None and not any(
        f"-{name}-" in given for name in ([but] if isinstance(but, str) else but)
    )


def has(item, word):
    return hasattr(words_in(HERE / "native", item.callspec.params["xdevice_backend"]), word)


@pytest.fixture(scope="session")
def compiler():
    """The command of the C++ compiler that the test needs."""
    return plugins.compiler() or pytest.skip(f"needs a C++ compiler: {plugins.INSTALL}")


@pytest.fixture
def plug_in(request):
    """For a test whose framework needs its plug-in here: where there is none, it can be compiled."""
    named = getattr(request.node, "callspec", NO_PARAMETERS).params.get("xdevice_backend")
    names = {named} if named else frameworks_of(*parts_of(request.node.path), request.config)
    if not all(map(has_plug_in, names)):
        pytest.skip(f"needs a plug-in, and so a C++ compiler: {plugins.INSTALL}")


@pytest.fixture
def with_virtual_gpus(request):
    """For a test whose processes ask for virtual GPUs, which need not stand in."""
    if (
        getattr(request.node, "callspec", NO_PARAMETERS).params.get("xdevice_backend")
        not in IN_PYTHON
    ):
        request.getfixturevalue("plug_in")


@cache
def has_plug_in(framework):
    """Whether the framework's virtual GPUs need no plug-in, or have it, or can have it compiled."""
    if plugins.compiler() is not None:
        return True
    virtual = xdevice.backend(framework).open("virtual")
    recipe = virtual.recipe() if virtual.has("recipe") else None
    return recipe is None or bool(plugins.program(plugins.fitting(recipe)) or plugins.find(recipe))


@pytest.fixture(autouse=True)
def outside_the_checkout(tmp_path, monkeypatch):
    """In the checkout, `python -c` would import the core from there, and not the package that is installed."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def with_ctrl_c():
    """What a command begins with to receive Ctrl-C and SIGHUP, though the tests were started in the background."""
    heed = "import os, signal, sys; [signal.signal(s, signal.SIG_DFL) for s in (signal.SIGINT, signal.SIGHUP)]; "
    heed += "os.execvp(sys.argv[1], sys.argv[1:])"
    return [sys.executable, "-c", heed]


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
        def role(cls): return "tensor" if issubclass(cls, toy.Tensor) else None
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
    """A folder with a toy framework and its adapter, which is registered as any other would be."""
    for name, text in TOY.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(textwrap.dedent(text))
    return tmp_path


@pytest.fixture
def run(toy_path, tmp_path):
    """Run code in a process of its own, in which the toy framework can be used."""

    def run(code, **env):
        path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
        clean = {k: v for k, v in os.environ.items() if not k.startswith("XDEVICE")}
        done = subprocess.run(
            [sys.executable, "-c", "import xdevice\n" + textwrap.dedent(code)],
            capture_output=True,
            text=True,
            timeout=300,
            env={**clean, "PYTHONPATH": path, **env},
            cwd=tmp_path,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run
