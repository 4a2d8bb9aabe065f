"""`scaling.py` runs real jobs, compares like with like and says what it promises to say."""

import json
import os
import re
import subprocess
import sys
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import pytest

pytestmark = pytest.mark.weekly

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
COUNTS = (2, 3, 8, 64, 1024)


@pytest.fixture
def model(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    yield import_module("parts.scaling_model")
    sys.modules.pop("parts.scaling_model", None)
    sys.modules.pop("parts", None)


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


@pytest.mark.skipif(sys.platform != "linux", reason="processes let each other in by way of /proc")
def test_both_barriers_are_measured_and_with_a_leader_killed_or_frozen():
    done = run("--barrier", 8, 128)
    assert done.returncode == 0, done.stderr[-3000:]
    number = r"[\d,.]+"
    found = re.findall(
        rf"^\| (\d+) \| (\d+) \| {number} \| {number} \| {number} \| {number} \|$",
        done.stdout,
        re.MULTILINE,
    )
    assert found == [("8", "8"), ("128", "64"), ("128", "8")]
    faults = re.findall(
        r"^\| is (\w+) \| 64 \| 63 \| 63 \| ([\d.]+) \|$", done.stdout, re.MULTILINE
    )
    assert [name for name, _ in faults] == ["killed", "frozen"]
    assert float(faults[0][1]) < float(faults[1][1])


def test_more_processes_cost_more_and_more_bandwidth_costs_less(model):
    for cost in (
        model.barrier,
        model.ports,
        lambda n: model.ring(n, 1e6),
        lambda n: model.servers(n, 1e6),
    ):
        assert all(cost(a) < cost(b) for a, b in pairwise(COUNTS))
    assert all(model.efficiency(a, 1e8) > model.efficiency(b, 1e8) for a, b in pairwise(COUNTS))
    faster = model.Network(2 * model.TEN_GIGABIT.bandwidth, model.TEN_GIGABIT.latency)
    for n in COUNTS:
        assert model.ring(n, 1e6) < model.ring(n, 1e8)
        assert model.ring(n, 1e8, faster) < model.ring(n, 1e8)
        assert 2 * (n - 1) / n * 1e8 / 1.25e9 < model.ring(n, 1e8)  # what the bytes alone take


def test_the_model_has_a_row_for_each_number_of_processes(model):
    said = run("--model").stdout.splitlines()
    assert [line.split(" | ")[0] for line in said[2:]] == ["| 2", "| 8", "| 64", "| 1024"]
    assert {line.count("|") for line in said} == {said[0].count("|")}


def test_it_refuses_what_it_cannot_measure():
    assert "no native way for torhc" in run("--backend", "torhc").stderr
    assert "--rounds is 1 or more" in run("--rounds", "0").stderr
