"""Which tests run where, for all of ``tests/``: by two marks and by folders.

``weekly``: with ``--weekly`` only. ``frameworks("torch", "jax")``: on a push under these alone,
and weekly under every framework. A folder named for a framework, such as ``tests/virtual/torch``,
is collected where that framework is tested: its files import it. A test that takes no framework
runs where NumPy is tested, once for all.

The frameworks themselves are chosen by the options of xdevice's pytest plugin, whose first user
is this suite: ``pytest --xdevice-backend=torch --xdevice-virtual-gpus=2``.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
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
MOST = 5.0  # seconds of processor time, of a test and its child processes
BUSY = 2  # beside other work, the same test takes up to so many times that
processor_time = pytest.StashKey[float]()


def pytest_addoption(parser):
    group = parser.getgroup("xdevice")
    group.addoption("--weekly", action="store_true", help="run also the tests marked weekly")


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
    if item.get_closest_marker("multi_device") and backend_of(item) == "numpy":
        return False  # it has the CPU alone
    mark = item.get_closest_marker("frameworks")
    own = backend_of(item)
    if own is None:
        wanted = mark.args if mark else folders_of(item.path) or {"numpy"}
        tested = backends_of(config) or ["numpy"]  # where there is none, the core is tested
        return not set(wanted).isdisjoint(tested)
    return mark is None or weekly or own in mark.args


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    before = sum(os.times()[:4])
    try:
        return (yield)
    finally:
        item.stash[processor_time] = sum(os.times()[:4]) - before


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Fail a test that takes too long for a push, or was skipped although there is a compiler."""
    report = yield
    seconds = item.stash.get(processor_time, 0.0)
    if report.when == "call":
        report.user_properties.append(("processor", seconds))
    is_long = report.when == "call" and seconds > BUSY * MOST
    if is_long and report.passed and not item.get_closest_marker("weekly"):
        report.outcome = "failed"
        report.longrepr = (
            f"took {seconds:.1f} s of processor time: above {MOST:g} s, mark it weekly"
        )
    elif report.skipped and "C++ compiler" in str(report.longrepr) and plugins.compiler():
        report.outcome = "failed"
        report.longrepr = f"there is a C++ compiler, and it was skipped: {report.longrepr[-1]}"
    return report


def pytest_terminal_summary(terminalreporter):
    """Print the processor time of the run, and the tests that take the most of it."""
    reports = [report for some in terminalreporter.stats.values() for report in some]
    measured = sorted(
        (
            (dict(report.user_properties)["processor"], report.nodeid)
            for report in reports
            if getattr(report, "user_properties", None)
        ),
        reverse=True,
    )
    terminalreporter.line(f"{sum(os.times()[:4]):.0f} s of processor time; the slowest tests:")
    for seconds, name in measured[: int(os.environ.get("SLOWEST", "5"))]:
        terminalreporter.line(f"{seconds:5.1f} s {name}")


@pytest.fixture(scope="session")
def compiler():
    """The command of the C++ compiler that the test needs."""
    return plugins.compiler() or pytest.skip(f"needs a C++ compiler: {plugins.INSTALL}")


@pytest.fixture
def plug_in(request):
    """For a test whose framework needs its plug-in: skipped if it has none and cannot compile it."""
    frameworks = {backend_of(request.node)} - {None} or folders_of(request.path)
    for name in frameworks if plugins.compiler() is None else ():
        virtual = xdevice.backend(name).load("virtual")
        recipe = virtual.recipe() if virtual.has("recipe") else None
        if recipe and not plugins.find(recipe):
            pytest.skip(f"needs a plug-in, and so a C++ compiler: {plugins.INSTALL}")


@pytest.fixture
def with_virtual_gpus(request):
    """For a test whose processes ask for virtual GPUs that need not stand in for real ones."""
    if backend_of(request.node) != "torch":  # only its stand-ins need a plug-in
        request.getfixturevalue("plug_in")


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


@pytest.fixture(scope="session")
def in_a_fork(tmp_path_factory):
    """Run programs of a framework, each in a fork of one process that has imported it.

    What is returned is as of `subprocess.run`. ``start`` are Python's arguments before the program.
    """
    processes = {}

    def run(framework, code, *start, **environment):
        if (framework, start) not in processes:
            command = [sys.executable, *start, HERE / "forks.py", framework]
            env = {
                name: text for name, text in os.environ.items() if not name.startswith("XDEVICE")
            }
            processes[framework, start] = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
            )
        process = processes[framework, start]
        folder = tmp_path_factory.mktemp("program")
        program, out, err = (folder / name for name in ("program.py", "out", "err"))
        program.write_text(code, encoding="utf-8")
        out.touch()
        err.touch()
        paths = {"folder": folder, "path": program, "out": out, "err": err}
        request = {name: str(path) for name, path in paths.items()} | {"environment": environment}
        print(json.dumps(request), file=process.stdin, flush=True)
        status = process.stdout.readline()
        assert status, f"it has not started: {process.args}"
        texts = [file.read_text("utf-8") for file in (out, err)]
        return subprocess.CompletedProcess(process.args, int(status), *texts)

    yield run
    for process in processes.values():
        with process:  # which closes its input, and waits for it
            pass


@pytest.fixture
def toy_path(tmp_path):
    """A folder with a toy framework and its adapter, registered by an entry point."""
    return shutil.copytree(HERE / "toy", tmp_path, dirs_exist_ok=True)


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
