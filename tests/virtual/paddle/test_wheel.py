"""The wheel that carries compiled plug-ins: built from plugins/, installed, and used where nothing can be compiled."""

import os
import subprocess
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

import xdevice
from xdevice.virtual.request import ENV

PROJECT = Path(__file__).parents[3] / "virtual" / "plugins" / "wheel"


@pytest.mark.weekly
def test_a_wheel_carries_the_plug_in_to_where_nothing_is_compiled(tmp_path, compiler):
    clean = {name: value for name, value in os.environ.items() if name not in (ENV, "CXX")}
    compiled, out, site = tmp_path / "compiled", tmp_path / "out", tmp_path / "site"
    build = [
        sys.executable,
        "-m",
        "xdevice",
        "virtual",
        "build",
        "--backend",
        "paddle",
        "--to",
        str(compiled),
    ]
    subprocess.run(build, env=clean, capture_output=True, check=True, timeout=100)
    project = tmp_path / "plugins"  # setuptools writes beside what it builds
    project.mkdir()
    for name in ("pyproject.toml", "setup.py", "LICENSE"):
        (project / name).write_bytes((PROJECT / name).read_bytes())
    settings = {"FRAMEWORK": "paddle", "COMPILED": str(compiled)}
    make = ["wheel", "-q", "--no-build-isolation", "--no-deps", "-w", str(out), str(project)]
    subprocess.run(
        [sys.executable, "-m", "pip", *make], env=clean | settings, check=True, timeout=100
    )
    (wheel,) = out.iterdir()
    release = version("paddlepaddle")
    assert wheel.name.startswith(
        f"xdevice_plugins_paddle-{release}.{xdevice.__version__}-py3-none-linux_"
    )
    files = zipfile.ZipFile(wheel)
    needed = files.read(
        next(name for name in files.namelist() if name.endswith("/METADATA"))
    ).decode()
    assert any(name.endswith("/licenses/LICENSE") for name in files.namelist())
    assert f"Requires-Dist: paddlepaddle=={release}\n" in needed
    assert f"Requires-Dist: xdevice-tensors=={xdevice.__version__}\n" in needed
    install = ["install", "-q", "--no-deps", "--target", str(site), str(wheel)]
    subprocess.run([sys.executable, "-m", "pip", *install], check=True, timeout=100)
    code = "import xdevice; print(xdevice.device_of(xdevice.ones((2,), device='gpu:1')))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=clean
        | {
            ENV: "2",
            "XDEVICE_BACKEND": "paddle",
            "PATH": "/",
            "XDG_CACHE_HOME": str(tmp_path),
            "TMPDIR": str(tmp_path),
        }
        | {"PYTHONPATH": os.pathsep.join([str(site), *filter(None, sys.path)])},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.stdout == "gpu:1\n", done.stderr
