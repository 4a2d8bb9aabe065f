"""What is shipped: the wheel holds every module, and nothing where it does not belong.

Each environment of tox installs it, and imports all of xdevice from it.
"""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_wheel_holds_every_module_under_its_own_name(wheel):
    shipped = {n for n in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in n}
    kinds = (".py", ".pyi", ".typed", ".cc", ".h", ".txt", ".css")
    core, *others = (
        {
            path.relative_to(ROOT).as_posix()
            for path in (ROOT / folder).rglob("*")
            if path.suffix in kinds or (path.parent.name == "commands" and path.is_file())
        }
        for folder in ("xdevice", "backends", "virtual", "testing", "tools")
    )
    beside = set().union(*others)
    assert "virtual/paddle/virtual_gpu.cc" in beside
    # this builds the wheels of plug-ins, and is not a part of the package
    beside = {name for name in beside if not name.startswith("virtual/plugins/wheel/")}
    assert shipped == core | {f"xdevice/{name}" for name in beside} | {"xdevice.py"}


def test_the_wheel_declares_its_adapters_and_extras(wheel):
    archive = zipfile.ZipFile(wheel)
    meta = {
        Path(n).name: archive.read(n).decode() for n in archive.namelist() if ".dist-info/" in n
    }
    adapters = {file.parent.name for file in (ROOT / "backends").glob("*/__init__.py")} - {"kit"}
    for name in adapters:
        assert f"{name} = xdevice.backends.{name}" in meta["entry_points.txt"]
    extras = {
        line.split(": ")[1]
        for line in meta["METADATA"].splitlines()
        if line.startswith("Provides-Extra")
    }
    named = {name.replace("_", "-") for name in adapters}  # as the metadata spells extras
    assert extras >= named | {"cli", "test", "test-core", "docs", "all"}


def test_without_the_metadata_each_call_says_so(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path)
    shutil.rmtree(*tmp_path.glob("*.dist-info"))
    env = os.environ | {"PYTHONPATH": str(tmp_path)}
    for call in ("available()", "use('numpy')", "ones(3)", "devices()"):
        command = [sys.executable, "-S", "-c", f"import xdevice; xdevice.{call}"]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
        line = done.stderr.splitlines()[-1]
        assert "no adapter is registered: the metadata of xdevice-tensors" in line
        assert line.endswith("pip install xdevice-tensors, or in a clone pip install -e .")


def test_the_plug_ins_wheels_have_the_same_licence():
    assert (ROOT / "virtual" / "plugins" / "wheel" / "LICENSE").read_bytes() == (
        ROOT / "LICENSE"
    ).read_bytes()


@pytest.mark.weekly
def test_pytest_does_not_warn_where_xdevice_was_imported_before_it(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    (tmp_path / "test_it.py").write_text("def test_it(): assert True\n")
    code = "import sys, xdevice, pytest; sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider']))"  # as by xdevice run
    env = os.environ | {"PYTHONPATH": str(tmp_path / "site")}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout, done.stdout + done.stderr
