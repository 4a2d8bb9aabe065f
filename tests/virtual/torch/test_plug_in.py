"""PyTorch's virtual GPUs where their plug-in is, is missing, and cannot be compiled."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from xdevice.virtual.request import ENV


def run(*arguments, status=0, **environment):
    """What the command prints, on two virtual GPUs that stand in."""
    env = os.environ | {ENV: "2:stand-in"} | environment
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=280,
        env=env,
        cwd=Path(__file__).parent,
    )
    assert done.returncode == status, done.stdout[-6000:] + done.stderr[-3000:]
    return done.stdout, done.stderr


@pytest.mark.weekly
@pytest.mark.usefixtures("plug_in")
def test_without_a_compiler_those_compiled_elsewhere_serve(tmp_path):
    code = "import xdevice, torch; x = torch.ones(2, device='cuda:1', requires_grad=True); (x * x).sum().backward()"
    run("-c", code)  # compiled by now
    out, _ = run("-c", f"{code}; print(x.grad)", PATH=str(tmp_path), CXX="")
    assert out == "tensor([2., 2.], device='cuda:1')\n"


def test_without_a_plug_in_the_error_says_what_there_is_and_what_to_type(in_a_fork):
    code = """
import xdevice, torch
try:
    xdevice.virtual_gpus(2, stand_in=True)
except xdevice.NotSupportedError as error:
    print(error)
xdevice.virtual_gpus(2)
print((torch.ones(2, device="vgpu:1") + 1).device, torch.cuda.is_available())
"""
    done = in_a_fork("torch", code, CXX="absent", XDEVICE_BACKEND="torch")
    assert done.returncode == 0, done.stderr
    error, works = done.stdout.splitlines()
    assert error.startswith(
        "virtual_gpus(2, stand_in=True) needs a compiled plug-in: virtual GPUs for torch "
    )
    assert "XDEVICE_PLUGINS" in error
    assert error.endswith("; virtual_gpus(2) works without it")
    assert works == "vgpu:1 False"
