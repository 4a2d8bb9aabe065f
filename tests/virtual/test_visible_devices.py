"""Variables choose among the virtual GPUs that stand in, as they do among real ones."""

import os
import subprocess
import sys

import pytest

from xdevice.virtual.request import ENV

PROGRAM = """
import os, sys
os.environ[sys.argv[2]] = sys.argv[1]
import {backend}
print({asked})
import xdevice
xdevice.use("{backend}")
print(xdevice.count("gpu"), xdevice.try_gpu(1))
"""
ASKED = {
    "torch": "torch.cuda.is_available(), torch.cuda.device_count()",
    "tensorflow": "[device.name[-5:] for device in tensorflow.config.list_physical_devices('GPU')]",
    "paddle": "paddle.device.cuda.device_count(), str(paddle.ones([1]).place)",
    "mxnet": "mxnet.context.num_gpus()",
    "jax": "[device.platform for device in jax.devices()]",
}
ONE = {
    "torch": "True 1",
    "tensorflow": "['GPU:0']",
    "paddle": "1 Place(gpu:0)",
    "mxnet": "1",
    "jax": "['gpu']",
}
NONE = {
    "torch": "False 0",
    "tensorflow": "[]",
    "paddle": "0 Place(cpu)",
    "mxnet": "0",
    "jax": "['cpu']",
}


@pytest.fixture
def said(backend, tmp_path, plug_in):
    def run(value, variable="CUDA_VISIBLE_DEVICES", **variables):
        (tmp_path / "program.py").write_text(PROGRAM.format(backend=backend, asked=ASKED[backend]))
        kept = {
            name: text
            for name, text in os.environ.items()
            if name not in (ENV, "CUDA_VISIBLE_DEVICES", "JAX_PLATFORMS")
        }
        command = [
            sys.executable,
            "-m",
            "xdevice",
            "emulate",
            "--gpus",
            "3",
            "program.py",
            value,
            variable,
        ]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=150, env=kept | variables, cwd=tmp_path
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout.splitlines(), done.stderr

    return run


@pytest.mark.frameworks("jax")
def test_a_program_chooses_one(said, backend):
    out, err = said("2", CUDA_VISIBLE_DEVICES="0,1")
    assert out == [ONE[backend], "1 cpu:0"]
    assert "CUDA_VISIBLE_DEVICES='0,1' was set for the machine's GPUs" in err


@pytest.mark.frameworks("jax")
def test_a_program_hides_all(said, backend):
    assert said("-1")[0] == [NONE[backend], "0 cpu:0"]


@pytest.mark.frameworks("jax")
@pytest.mark.only_backends("jax")
def test_jax_has_a_variable_of_its_own(said):
    out, err = said("cpu", "JAX_PLATFORMS", JAX_PLATFORMS="cuda")
    assert out == [NONE["jax"], "0 cpu:0"]
    assert "JAX_PLATFORMS='cuda' was set for the machine's GPUs" in err
    assert "JAX_PLATFORMS=cpu hides the virtual GPUs from jax" in err
