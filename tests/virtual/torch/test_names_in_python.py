"""The private names that PyTorch's virtual GPUs need where there is no compiler, and they are written in Python."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from xdevice.virtual.request import ENV

PROGRAM = Path(__file__).parents[1] / "names_removed.py"


@pytest.mark.weekly
def test_without_a_name_the_feature_that_needs_it_is_missing_and_nothing_else(tmp_path):
    clean = {
        name: value for name, value in os.environ.items() if name not in (ENV, "XDEVICE_PLUGINS")
    }
    without_plug_in = {**clean, "CXX": "none", "XDG_CACHE_HOME": str(tmp_path)}
    command = [sys.executable, PROGRAM, "torch", "--in-python"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=1500, env=without_plug_in
    )
    assert done.returncode == 0, done.stderr[-5000:]
    assert done.stdout.splitlines() == [], done.stderr[-5000:]
