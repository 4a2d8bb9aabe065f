"""The recipe of docs/project/virtual.md#plug-ins for a container: compiled by root, then used without a compiler."""

import os
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import distribution
from pathlib import Path

import pytest

import xdevice.backends
from xdevice.virtual.request import ENV

# That user may not reach the interpreter's own files here, so what is needed is imported first.
PROGRAM = """
import importlib, importlib.metadata, os, pkgutil, sys, torch, torch._dynamo, torch.distributed.tensor
import torch.nested._internal.ops
import xdevice, xdevice.backends.torch, xdevice.virtual.torch, xdevice.virtual.plugins
for package in (xdevice.backends.torch, xdevice.virtual.torch, xdevice.virtual.plugins, xdevice.backends.kit):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if "at_start" not in module.name and "keras" not in module.name:
            importlib.import_module(module.name)
os.chdir("/")
os.setgroups([])
os.setgid(54321)
os.setuid(54321)
xdevice.use("torch")
xdevice.virtual_gpus(2, stand_in=True)
print((torch.ones(2, device="cuda:1") + 1).tolist())
"""


def install(site):
    """xdevice where that user may read it; the tests' own environment may be root's alone."""
    shutil.copytree(Path(xdevice.__file__).parent, site / "xdevice")
    shutil.copytree(*xdevice.backends.__path__, site / "xdevice" / "backends", dirs_exist_ok=True)
    files = distribution("xdevice-tensors").files
    points = next(file for file in files if file.name == "entry_points.txt")
    shutil.copytree(points.locate().parent, site / points.parent.name)


@pytest.mark.weekly
@pytest.mark.skipif(os.name == "nt" or os.getuid() != 0, reason="only root can become another user")
def test_a_container_uses_what_its_build_has_compiled(compiler):
    clean = {name: value for name, value in os.environ.items() if name != ENV}
    build = [sys.executable, "-m", "xdevice", "virtual", "build", "--backend", "torch"]
    said = subprocess.run(
        build, env=clean, capture_output=True, text=True, check=True, timeout=280
    ).stdout
    library = Path(
        said.removeprefix("torch: ").split(" is there already")[0].split(" was compiled")[0]
    )
    container = Path(tempfile.mkdtemp(prefix="xdevice-tests-", dir="/tmp"))
    try:
        container.chmod(0o755)
        shutil.copytree(library.parents[1], container / "plug-ins", copy_function=shutil.copy)
        install(container / "site")
        for mode in (0o755, 0o711):
            (container / "plug-ins").chmod(mode)
            done = subprocess.run(
                [sys.executable, "-c", PROGRAM],
                env={
                    "PATH": "/",
                    "XDEVICE_PLUGINS": str(container / "plug-ins"),
                    "TMPDIR": "/nowhere",
                }
                | {"PYTHONPATH": str(container / "site")},
                capture_output=True,
                text=True,
                timeout=100,
            )
            assert done.stdout == "[2.0, 2.0]\n", done.stderr
            assert "compiling" not in done.stderr
    finally:
        shutil.rmtree(container)
