"""Importing an adapter imports its framework, and starts nothing of it."""

import sys

import pytest

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
