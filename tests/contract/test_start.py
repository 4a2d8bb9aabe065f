"""Importing an adapter imports its framework, and starts nothing of it; its capabilities are prepared first."""

import sys
import threading

import pytest

from xdevice.framework.adapters import after_loading, find

CODE = """
import importlib, os, pkgutil, sys
import xdevice

backend = os.environ["XDEVICE_BACKEND"]
adapter = xdevice.backend(backend).adapter
threads = set(os.listdir("/proc/self/task"))
for module in pkgutil.walk_packages(adapter.__path__, f"{adapter.__name__}."):
    importlib.import_module(module.name)
assert set(os.listdir("/proc/self/task")) == threads, "a module of the adapter starts threads"
xdevice.use(backend)
xdevice.share_gpus()  # an error where the framework has been used
"""


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads in /proc")
def test_importing_every_module_of_an_adapter_starts_nothing(backend, in_a_fork):
    done = in_a_fork(backend, CODE, XDEVICE_BACKEND=backend)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.frameworks("numpy")
def test_no_thread_gets_a_capability_before_its_callbacks_have_run(backend, monkeypatch):
    """The thread that loads it first is still in a callback when a second one asks for it."""
    owner, ran = find(backend), []
    first_is_in, second_is_done = threading.Event(), threading.Event()
    _ = owner.exchange

    def callback(loaded):
        if threading.current_thread() is first:
            first_is_in.set()
            second_is_done.wait(10)
        else:
            ran.append(loaded)

    first = threading.Thread(target=lambda: owner.exchange)
    monkeypatch.delitem(vars(owner), "exchange")
    after_loading.append(callback)
    try:
        first.start()
        assert first_is_in.wait(10)
        owner.load("exchange")
        assert ran == [owner]
    finally:
        second_is_done.set()
        first.join()
        after_loading.remove(callback)
