"""`failures.py` makes real jobs fail, and notices one that does not or that does not say who did."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.weekly

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "failures.py"


@pytest.fixture
def failures(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARK.parent)
    yield __import__("failures")
    sys.modules.pop("failures", None)


def run(*arguments):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("XDEVICE_")}
    command = [sys.executable, BENCHMARK, *map(str, arguments)]
    return subprocess.run(
        command, env=kept, capture_output=True, text=True, timeout=200, check=False
    )


# the others' failures are in tests/distributed
@pytest.mark.parametrize("rank", [0, 1])
def test_each_framework_has_its_row(rank):
    done = run("--backend", "torch", "--rounds", 1, "--kind", "raises", "--rank", rank)
    assert done.returncode == 0, done.stdout + done.stderr
    head, _, row = done.stdout.splitlines()
    assert head == f"| rank {rank} | raises |"
    assert re.fullmatch(r"\| torch \| \d+\.\d \|", row)


def test_a_job_that_does_not_come_to_fail_is_no_figure():
    done = run("--backend", "numpy", "--rounds", 1, "--kind", "raises")
    assert done.returncode != 0
    assert "raises did not come to fail" in done.stderr
    assert "numpy has no engine" in done.stderr


def test_a_failure_that_names_nobody_is_marked(failures, monkeypatch, tmp_path):
    quiet = tmp_path / "quiet.py"
    quiet.write_text(
        f"import os, time\nif os.environ['XDEVICE_RANK'] == '1': print('{failures.MARK}', time.time())"
    )
    monkeypatch.setattr(failures, "__file__", str(quiet))
    assert failures.cell("numpy", "raises", 1, 1).endswith(" !")


def test_it_refuses_what_it_cannot_measure():
    assert "no backend 'torhc'" in run("--backend", "torhc").stderr
    assert "--rounds is 1 or more" in run("--rounds", 0).stderr
