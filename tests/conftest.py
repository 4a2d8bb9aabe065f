"""Our own suite is the first user of xdevice's pytest plugin, and adds what only it needs.

Run ``pytest --xdevice-backend=torch,numpy``: see ``xdevice/testing/plugin.py``. A framework's own tests are
collected where it is tested; those of virtual GPUs where there are some, and those that assume a machine
without a GPU where there are none. ``@pytest.mark.needs("model")`` keeps a test to the frameworks whose file in
``tests/native`` has that function.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from xdevice.testing.native import words_in
from xdevice.testing.plugin import backends_of

HERE = Path(__file__).parent


def pytest_configure(config):
    config.addinivalue_line("markers", "needs(name): the framework's tests/native file has that function")


def pytest_ignore_collect(collection_path, config):
    folder, name = collection_path.parent.name, collection_path.stem.removeprefix("test_")
    if folder == "distributed" and name.startswith("quirks_"):
        return True if name.removeprefix("quirks_") not in backends_of(config) else None
    if folder not in ("quirks", "virtual") or name == collection_path.stem:
        return None
    name = name.partition("_")[0]  # test_torch_libraries is PyTorch's, too
    virtual = os.environ.get("XDEVICE_VIRTUAL_GPUS", "0") not in ("", "0")
    return True if name not in backends_of(config) or virtual != (folder == "virtual") else None


def pytest_collection_modifyitems(config, items):
    theirs = [item for item in items if all(has(item, mark.args[0]) for mark in item.iter_markers("needs"))]
    if len(theirs) < len(items):
        config.hook.pytest_deselected(items=list(set(items) - set(theirs)))
        items[:] = theirs


def has(item, word):
    return hasattr(words_in(HERE / "native", item.callspec.params["xdevice_backend"]), word)


@pytest.fixture(autouse=True)
def outside_the_checkout(tmp_path, monkeypatch):
    """In the checkout, `python -c` would import the core from there, and not the package that is installed."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def heeding_ctrl_c():
    """What a command begins with to end by Ctrl-C, though a shell has started the tests in the background, without."""
    heed = "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execvp(sys.argv[1], sys.argv[1:])"
    return [sys.executable, "-c", heed]
