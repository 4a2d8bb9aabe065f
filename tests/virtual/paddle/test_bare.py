"""PaddlePaddle's virtual GPUs by a plug-in without GNU's C++ library, as ziglang compiles it."""

import os
import subprocess
import sys

import pytest

from xdevice.virtual import paddle as virtual
from xdevice.virtual import plugins
from xdevice.virtual.request import ENV

PROGRAM = """
import xdevice
from xdevice import device_of, gpu, ones, scope
paddle = xdevice.backend("paddle").framework
with scope(gpu(1)):
    net = paddle.nn.Sequential(paddle.nn.Linear(3, 4), paddle.nn.ReLU(), paddle.nn.Linear(4, 1))
    optimizer = paddle.optimizer.Adam(0.1, parameters=net.parameters())
    x = ones((8, 3), device=gpu(1))
    losses = []
    for _ in range(20):
        loss = ((net(x) - 3) ** 2).mean()
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        losses.append(float(loss))
print(device_of(loss), losses[-1] < losses[0] / 2)
try:
    half = ones((2, 2), device=gpu(1)).astype("float16")
    half @ half
except RuntimeError as error:
    print("float16" in str(error))
"""
WITHOUT = {"PATH": "/", "CXX": ""}


@pytest.fixture
def python(tmp_path):
    """Runs a program with two virtual GPUs where no compiler is on the path, and the user's cache is empty."""

    def run(program, **environment):
        fresh = {
            **os.environ,
            **WITHOUT,
            ENV: "2",
            "XDEVICE_BACKEND": "paddle",
            "XDG_CACHE_HOME": str(tmp_path),
        }
        return subprocess.run(
            [sys.executable, "-W", "ignore", "-c", program],
            env={**fresh, **environment},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    return run


def test_a_network_trains_without_kernels_for_16_bit_floats(python, tmp_path):
    bare = virtual.recipe().bare
    if plugins.program(bare) is None:
        pytest.skip(f"needs a C++ compiler: {plugins.INSTALL}, or pip install ziglang")
    plugins.build(bare, tmp_path)
    done = python(
        f"import sys; sys.modules['ziglang'] = None\n{PROGRAM}", XDEVICE_PLUGINS=str(tmp_path)
    )
    assert done.stdout == "gpu:1 True\nTrue\n", done.stderr


@pytest.mark.weekly
def test_ziglang_compiles_it_where_there_is_no_other_compiler(python):
    pytest.importorskip("ziglang")
    done = python(PROGRAM)
    assert done.stdout == "gpu:1 True\nTrue\n", done.stderr
    assert "once, without kernels for 16-bit floats" in done.stderr


@pytest.mark.weekly
@pytest.mark.usefixtures("compiler")
def test_a_whole_plug_in_is_preferred(monkeypatch, tmp_path):
    whole = virtual.recipe()
    monkeypatch.setenv("XDEVICE_PLUGINS", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "empty"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "empty"))
    made = plugins.build(whole.bare, tmp_path), plugins.build(whole, tmp_path)
    assert plugins.library(whole) == made[1]
    monkeypatch.setenv("PATH", "/")
    assert plugins.library(whole) == made[1]
    made[1].unlink()
    assert plugins.library(whole) == made[0]
