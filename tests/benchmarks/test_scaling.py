"""`scaling.py` runs real jobs, compares like with like and says what it promises to say."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.weekly

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def run(*arguments):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("XDEVICE_")}
    return subprocess.run(
        [sys.executable, BENCHMARKS / "scaling.py", *map(str, arguments)],
        env={**kept, "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        timeout=400,
        check=False,
    )


# Each of the others takes another minute, and has its own jobs elsewhere.
@pytest.mark.parametrize("backend", ["torch", "tensorflow", "mxnet", "numpy"])
def test_every_contender_comes_to_the_same_parameters_and_has_its_row(backend, tmp_path):
    if backend == "numpy":
        done = run("--backend", "numpy")
        assert done.returncode == 2
        assert "no native way for numpy" in done.stderr
        return
    file = tmp_path / "rates.json"
    done = run("--backend", backend, "--rounds", 1, "--seconds", 0.05, "--json", file)
    assert done.returncode == 0, done.stderr[-3000:]  # they are compared after their first step
    rows = [
        [cell.strip() for cell in line.strip("| \n").split(" | ")]
        for line in done.stdout.splitlines()[2:]
    ]
    on = [row[1] for row in rows if row[0] == backend]
    assert on[:4] == [
        "1 process",
        "1 process, the lesson's network",
        "2 processes apart",
        "2 processes",
    ]
    assert on[4] == "1 device"
    assert on[-1] == "2 devices"
    assert all(re.fullmatch(r"[\d,]+", row[3]) for row in rows)
    for job in json.loads(file.read_text(encoding="utf-8"))[str(backend)].values():
        for clock in ("wall", "cpu"):
            assert all(len(rates) == 1 and rates[0] > 0 for rates in job[clock].values())


def test_it_refuses_what_it_cannot_measure():
    assert "no native way for torhc" in run("--backend", "torhc").stderr
    assert "--rounds is 1 or more" in run("--rounds", "0").stderr
