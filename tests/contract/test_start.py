"""Importing an adapter imports its framework, and starts nothing of it."""

import subprocess
import sys

import pytest

CODE = """
import importlib, os, pkgutil, sys
import xdevice

adapter = xdevice.backend(sys.argv[1]).adapter
threads = set(os.listdir("/proc/self/task"))
for module in pkgutil.walk_packages(adapter.__path__, f"{adapter.__name__}."):
    importlib.import_module(module.name)
assert set(os.listdir("/proc/self/task")) == threads, "a module of the adapter starts threads"
xdevice.use(sys.argv[1])
xdevice.share_gpus()  # an error where the framework has been used
"""


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads in /proc")
def test_importing_every_module_of_an_adapter_starts_nothing(backend):
    done = subprocess.run(
        [sys.executable, "-c", CODE, backend], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
