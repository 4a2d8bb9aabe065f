"""Six frameworks in one process, imported in any order."""

import subprocess
import sys

import pytest

import xdevice

NAMES = ("torch", "tensorflow", "paddle", "mxnet", "jax", "numpy")
ORDERS = [NAMES, NAMES[::-1]]  # of each two, either comes first in one of them
USE_ALL = """
import sys, xdevice
import numpy
for name in sys.argv[1].split():
    with xdevice.using(name):
        x = xdevice.ones((2, 3))
        assert type(x).__module__.partition(".")[0] in (name, name + "lib", "builtins"), type(x)
        assert xdevice.device_of(x) == xdevice.cpu()
made = [xdevice.using(n).__enter__() and xdevice.rand((4, 4)) for n in sys.argv[1].split()]
assert xdevice.is_same_device(*made)
assert all(numpy.isfinite(xdevice.to_numpy(m @ m)).all() for m in made)
assert xdevice.to_device(made, "cpu") is made
print("all is well")
"""

pytestmark = pytest.mark.skipif(
    not set(NAMES) <= set(xdevice.available()),
    reason="needs all six frameworks side by side: `tox -e all`",
)


@pytest.mark.weekly
@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_all_six_in_this_order(order):
    done = subprocess.run(
        [sys.executable, "-c", USE_ALL, " ".join(order)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "all is well" in done.stdout


@pytest.mark.weekly
@pytest.mark.parametrize(
    "first", ["import tensorflow", "import tensorflow, jax, torch", "import paddle, tensorflow"]
)
def test_what_the_user_imported_does_no_harm(first):
    code = first + "\n" + USE_ALL
    done = subprocess.run(
        [sys.executable, "-c", code, "paddle mxnet tensorflow"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.weekly
def test_a_plain_import_after_ours():
    code = """
import tensorflow, xdevice
xdevice.use("paddle"); xdevice.count(); xdevice.backend("mxnet").framework
import paddle, mxnet
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
