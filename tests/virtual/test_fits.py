"""``xdevice fits`` under other frameworks than PyTorch: an error when the program imports it."""

import subprocess
import sys

import pytest

from xdevice.framework.adapters import find
from xdevice.framework.registry import entry_points_of
from xdevice.hardware.virtual import GROUP
from xdevice.virtual.fits.process import check_is_measured

START = [sys.executable, "-m", "xdevice", "fits", "4GiB"]


@pytest.mark.frameworks("torch", "jax")
def test_what_cannot_be_measured_is_refused_at_its_import(backend, tmp_path):
    if backend == "torch" or backend not in entry_points_of(GROUP):
        check_is_measured(find(backend))  # raises no error
        return
    (tmp_path / "program.py").write_text(f"import {backend}\nprint('ran')")
    done = subprocess.run(
        [*START, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=200
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert f"xdevice fits is not known under {backend}: its virtual GPUs do not" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.weekly
@pytest.mark.only_backends("jax")
def test_it_is_refused_too_where_another_module_imports_the_framework(backend, tmp_path):
    (tmp_path / "program.py").write_text("import other\nprint('ran')")
    (tmp_path / "other.py").write_text(f"import {backend}")
    done = subprocess.run(
        [*START, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=200
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert f"xdevice fits is not known under {backend}: its virtual GPUs do not" in done.stderr
