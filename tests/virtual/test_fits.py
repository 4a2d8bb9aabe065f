"""``xdevice run --fits`` under other frameworks than PyTorch: an error before the program runs."""

import subprocess
import sys

from xdevice.framework.adapters import find
from xdevice.hardware.virtual import provider


def test_a_framework_is_measured_or_refused_before_the_program_runs(backend, tmp_path):
    if find(backend).load("virtual").has("enable") and not _is_measured(backend):
        (tmp_path / "program.py").write_text(f"print('ran')\nimport {backend}")
        done = subprocess.run(
            [sys.executable, "-m", "xdevice", "run", "--fits", "4GiB", "program.py"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=200,
        )
        assert (done.returncode, done.stdout) == (2, "")
        assert f"--fits is not known under {backend}" in done.stderr
    else:
        provider().check_measured([backend])  # raises no error


def _is_measured(backend):
    return find(backend).load("measuring").has("measure_memory")
