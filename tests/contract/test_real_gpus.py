"""Virtual GPUs on a machine that has real ones; each framework in a process of its own."""

import os
import subprocess
import sys

import pytest

from xdevice.virtual.request import ENV

CODE = """
import xdevice
xdevice.use({backend!r})
try:
    xdevice.virtual_gpus(2)
except xdevice.VirtualDeviceError as error:
    print(error)
{then}
"""


@pytest.fixture(autouse=True)
def can_have_virtual_gpus(backend):
    if not backend.load_unprepared("virtual").has("enable"):
        pytest.skip(f"{backend} has no virtual GPUs, whatever real ones there are")


def run(backend, then):
    clean = {name: value for name, value in os.environ.items() if name != ENV}
    code = CODE.format(backend=backend, then=then)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, env=clean
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


@pytest.mark.gpu(1)
def test_real_gpus_are_no_longer_seen_only_if_that_is_forced(backend):
    then = 'print(len(xdevice.virtual_gpus(2, force=True)), xdevice.properties("gpu:1")["virtual"])'
    error, forced = run(backend, then)
    assert "real" in error
    assert "virtual_gpus(2, force=True)" in error
    assert forced == "2 True"


@pytest.mark.gpu(1)
def test_what_was_refused_leaves_the_real_ones(backend):
    error, after = run(
        backend, 'print(xdevice.properties("gpu:0")["virtual"], repr(xdevice.gpu(0)))'
    )
    assert "real" in error
    assert after == "False Device('gpu:0')"
