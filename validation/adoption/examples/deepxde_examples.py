"""DeepXDE's tests: those of its examples that are the same under each of its backends.

They train for one iteration. DeepXDE's own script `examples/sample_to_test.py` shortens them.
"""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

NAMES = ("function/func", "function/dataset", "pinn_forward/Helmholtz_Dirichlet_2d")


@pytest.mark.parametrize("name", NAMES)
def test_the_example_trains_for_an_iteration(name, tmp_path, monkeypatch):
    example = Path("examples", f"{name}.py").resolve()
    shorten = [sys.executable, "sample_to_test.py", str(example)]
    done = subprocess.run(shorten, cwd="examples", capture_output=True, text=True, check=True)
    assert "iterations=1" in done.stdout
    script = tmp_path / "short.py"
    script.write_text(done.stdout, encoding="utf-8")
    (tmp_path / "run").mkdir()
    (tmp_path / "dataset").symlink_to(Path("examples/dataset").resolve())
    monkeypatch.chdir(tmp_path / "run")  # it reads ../dataset
    found = runpy.run_path(str(script))
    assert found["train_state"].step == 1
