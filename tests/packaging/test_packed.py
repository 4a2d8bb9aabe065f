"""A packed or copied program: the hook packs what is found by name; what is missing is named, with its cure."""

import os
import shutil
import subprocess
import sys
from zipfile import ZipFile

import pytest

PACKED = "import sys; sys._MEIPASS = '.'; "  # how PyInstaller's programs know themselves
WITHOUT = "BrokenBackendError: no adapter is registered: the metadata of xdevice-tensors (xdevice_tensors-*.dist-info)"


@pytest.fixture
def site(wheel, tmp_path):
    ZipFile(wheel).extractall(tmp_path)
    return tmp_path


def said(folder, code):
    command, environment = (
        [sys.executable, "-S", "-c", code],
        {**os.environ, "PYTHONPATH": str(folder)},
    )
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, env=environment, cwd=folder
    )
    return done.stderr.splitlines()[-1]


@pytest.mark.parametrize("call", ["available()", "use('numpy')", "ones(3)", "devices()"])
@pytest.mark.parametrize(
    ("before", "cure"),
    [
        ("", "pip install xdevice-tensors, or copy that folder too"),
        (PACKED, "pyinstaller --copy-metadata xdevice-tensors --collect-all xdevice"),
    ],
)
def test_without_the_metadata_each_call_says_so(site, before, cure, call):
    shutil.rmtree(*site.glob("*.dist-info"))
    line = said(site, f"{before}import xdevice; xdevice.{call}")
    assert WITHOUT in line
    assert line.endswith(f"is missing; {cure}")


def test_a_clone_that_is_not_installed_says_how_to_install_it(source, tmp_path):
    clone = shutil.copytree(source, tmp_path / "clone", ignore=shutil.ignore_patterns("*.egg-info"))
    line = said(clone, "import xdevice; xdevice.available()")
    assert WITHOUT in line
    assert line.endswith(f"pip install -e {clone}")


@pytest.mark.parametrize(
    ("before", "cure"), [("", "pip install numpy"), (PACKED, "pyinstaller --hidden-import numpy")]
)
def test_a_framework_that_is_not_packed_has_the_packer_s_cure(site, before, cure):
    for call in ("use('numpy')", "devices()"):
        assert said(site, f"{before}import xdevice; xdevice.{call}").endswith(f"; {cure}")


@pytest.mark.weekly
def test_a_program_that_names_no_framework_is_packed_with_those_installed(tmp_path):
    """Needs PyInstaller and NumPy, and no other framework: the tox environment `release` has them."""
    program = "import xdevice\nx = xdevice.ones(2, device=xdevice.try_gpu())\nprint(x, xdevice.device_of(x))\n"
    (tmp_path / "program.py").write_text(program, encoding="utf-8")
    command = [sys.executable, "-m", "PyInstaller", "--log-level", "ERROR", "program.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    clean = {"PATH": os.defpath, "SYSTEMROOT": os.environ.get("SYSTEMROOT", "")}
    ran = subprocess.run(
        [tmp_path / "dist" / "program" / "program"],
        capture_output=True,
        text=True,
        timeout=120,
        env=clean,
    )
    assert ran.stdout == "[1. 1.] cpu:0\n", ran.stderr
