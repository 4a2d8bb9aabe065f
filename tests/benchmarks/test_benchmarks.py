"""The benchmarks run and say what they promise to say. What they measure is not asserted: the machine decides that."""

import json
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.weekly

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
WITHOUT_COMPILERS = BENCHMARKS.parent / "tests" / "without_compilers.py"
FEW = ("--rounds", "2", "--seconds", "0")
WITHOUT_IVY = """
import os, runpy, sys
sys.modules["ivy"] = None
del sys.argv[0]
sys.path[0] = os.path.dirname(sys.argv[0])
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture
def contenders(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    yield __import__("contenders")
    for name in ("contenders", "overhead", "report"):
        sys.modules.pop(name, None)


@cache
def run(script, *arguments, python=()):
    return subprocess.run(
        [sys.executable, *python, BENCHMARKS / script, *map(str, arguments)],
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        timeout=300,
        check=False,
    )


def output(script, *arguments, **how):
    done = run(script, *arguments, **how)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture
def measured(backend, tmp_path_factory):
    """What `overhead.py` prints, and its figures, on a machine without Ivy."""
    file = tmp_path_factory.getbasetemp() / f"{backend}.json"
    said = output(
        "overhead.py", "--backend", backend, *FEW, "--json", file, python=("-c", WITHOUT_IVY)
    )
    return said, json.loads(file.read_text(encoding="utf-8"))


def test_overhead_times_xdevice_beside_every_native_call(backend, contenders, measured):
    timed = {(r["question"], r["contender"]) for r in measured[1]["results"]}
    for question in asked(contenders, backend):
        assert (question.title, "xdevice") in timed
        if question.key in contenders.NATIVE[backend] or question.leaves:
            assert (question.title, "native") in timed


def asked(contenders, backend):
    """The questions that can be asked under a framework."""
    return [
        question
        for question in contenders.QUESTIONS
        if (question.key != "model" or backend in contenders.MODELS)
        and (question.place != contenders.GPU or backend != "numpy")
    ]


def test_overhead_judges_every_budget(backend, contenders, measured):
    for question in asked(contenders, backend):
        for budget in question.budgets:
            peer = contenders.PEERS.get(budget.against)
            if peer and backend not in peer.frameworks:
                continue
            title = f"budget, {question.title}, × {budget.against}: "
            (verdict,) = [line for line in measured[0].splitlines() if line.startswith(title)]
            limit = re.escape(f"(at most {budget.under(backend):g})")
            assert re.search(rf"(met|missed) {limit}|no {budget.against} under", verdict)


def test_overhead_fails_where_a_figure_is_twice_a_recorded_one(tmp_path):
    select = ("--backend", "numpy", "--select", "device_of", *FEW, "--fail-beyond", "2")
    file = tmp_path / "costs.md"
    for recorded, status in (("1e6", 0), ("0.10", 1)):
        file.write_text(
            f"|  | torch | numpy |\n| --- | ---: | ---: |\n| device_of | – | **{recorded} ± 0.01** |\n",
            encoding="utf-8",
        )
        done = run(BENCHMARKS / "overhead.py", *select, "--recorded", str(file))
        assert done.returncode == status, done.stderr
        said = re.search(
            r"^more than 2 times as before: device_of under numpy: ", done.stderr, re.M
        )
        assert bool(said) == bool(status)
        run.cache_clear()


def test_overhead_fails_where_a_figure_is_beyond_a_budget(tmp_path):
    select = ("--backend", "numpy", "--select", "device_of", *FEW, "--fail-beyond", "2")
    folder = tmp_path / "benchmarks"
    shutil.copytree(BENCHMARKS, folder)
    file = folder / "contenders.py"
    text = file.read_text(encoding="utf-8")
    question = '"device_of(x)",\n        (Budget(2.5'
    assert text.count(question) == 1
    for limit, status in (("1e6", 0), ("0.001", 1)):
        changed = text.replace(question, question.replace("2.5", limit))
        file.write_text(changed, encoding="utf-8")
        done = run(folder / "overhead.py", *select, python=("-B",))
        assert done.returncode == status, done.stderr
        said = re.search(r"^more than 2 times a budget: device_of, × native: ", done.stderr, re.M)
        assert bool(said) == bool(status)
        run.cache_clear()


def test_overhead_measures_several_frameworks_each_in_its_own_process(tmp_path):
    file = tmp_path / "figures.json"
    select = ("--select", "is_same_device", *FEW, "--json", file)
    said = output("overhead.py", "--backend", "numpy,torch", *select)
    results = json.loads(file.read_text(encoding="utf-8"))["results"]
    assert {"numpy", "torch"} == {result["backend"] for result in results}
    assert "two GPUs under numpy: NotSupportedError: numpy has no virtual GPUs" in said


@pytest.mark.parametrize("backend", ["paddle", "numpy"])  # whose virtual GPUs need a compiler
def test_overhead_needs_no_compiler(backend, tmp_path):
    select = ("--backend", backend, "--select", "device_of", *FEW)
    command = [sys.executable, WITHOUT_COMPILERS, sys.executable, BENCHMARKS / "overhead.py"]
    done = subprocess.run([*command, *select], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"no figure for two GPUs under {backend}: " in done.stdout
    assert re.search(rf"^{backend} +device_of +[\d.,]+ ", done.stdout, re.M)


def test_overhead_has_a_column_for_every_library_and_names_the_missing(
    backend, contenders, measured
):
    assert all(peer in measured[0].splitlines()[0] for peer in contenders.PEERS)
    assert f"no figure for Ivy under {backend}: ivy is not installed" in measured[0]


def test_the_markdown_table_is_whole(backend, contenders):
    said = output("overhead.py", "--backend", backend, *FEW, "--markdown")
    rows = [line for line in said.splitlines() if line.startswith("|")]
    comparison = rows[: len(asked(contenders, backend)) + 2]  # with the head and the ruler
    assert comparison[0] == f"|  | {backend} | budget |"
    assert [row.split(" | ")[0].removeprefix("| ") for row in comparison[2:]] == [
        question.title for question in asked(contenders, backend)
    ]
    assert {row.count("|") for row in comparison} == {comparison[0].count("|")}
    peers = rows[len(comparison) :]
    if peers:
        assert peers[0].startswith(f"| under {backend} | native, ns | xdevice | ")
        assert {row.count("|") for row in peers} == {peers[0].count("|")}


def test_trees_hold_as_many_tensors_as_their_question_says(contenders):
    import optree
    from overhead import nested

    for question in contenders.QUESTIONS:
        assert sorted(optree.tree_leaves(nested(list(range(question.leaves))))) == list(
            range(question.leaves)
        )


def test_overhead_refuses_what_it_cannot_measure():
    done = run("overhead.py", "--backend", "torhc")
    assert done.returncode == 2
    assert "no backend 'torhc'" in done.stderr
    assert "Traceback" not in done.stderr
    assert "at least 2" in run("overhead.py", "--rounds", 1).stderr
    assert "no question has this text" in run("overhead.py", "--select", "tee").stderr


def test_import_time_judges_its_budget_and_names_the_missing():
    said = output("import_time.py", "json", "no_such_module", "--rounds", "2")
    assert re.search(
        r"^json +-?[\d.]+ ± [\d.]+ +-?[\d.]+ ± [\d.]+ ms +\d+ modules$", said, re.MULTILINE
    )
    verdict = (
        r"^budget, import xdevice, at most 0.4 of a bare interpreter: -?[\d.e-]+, (met|missed)$"
    )
    assert re.search(verdict, said, re.MULTILINE)
    assert "no figure for no_such_module: not installed" in said


def test_import_time_refuses_a_single_round():
    assert "at least 2" in run("import_time.py", "--rounds", 1).stderr


@pytest.mark.parametrize("backend", ["jax", "numpy"])
def test_transfers_times_every_contender_and_names_the_missing(backend, tmp_path):
    files = tmp_path / "rows.json", tmp_path / "picture.svg"
    arguments = (
        "transfers.py",
        "--backend",
        backend,
        "--quick",
        "--json",
        files[0],
        "--plot",
        files[1],
    )
    if backend == "numpy":
        done = run(*arguments)
        assert done.returncode == 2
        assert "numpy has no virtual GPUs" in done.stderr
        return
    said = output(*arguments)
    rows = json.loads(files[0].read_text(encoding="utf-8"))
    assert {row["section"] for row in rows} == {
        "to the GPU", "to the host", "4 tensors", "16 tensors", "64 tensors", "steps with batches",
        "LeNet step",
    }  # fmt: skip
    assert all(len(row["seconds"]) == 2 and min(row["seconds"]) > 0 for row in rows)
    assert {"native", "to_device", "prefetch", "as one vector", "watch_transfers()"} <= {
        row["contender"] for row in rows
    }
    assert f"no figure for accelerate's loader under {backend}: it loads for torch only" in said
    assert files[1].read_text(encoding="utf-8").startswith("<?xml")


@pytest.mark.parametrize("backend", ["torch", "paddle", "numpy"])  # those with an aim to meet
def test_virtual_times_every_piece_of_work_on_the_cpu_and_on_a_virtual_gpu(backend, tmp_path):
    if backend == "numpy":
        done = run("virtual.py", "--backend", "numpy")
        assert done.returncode == 2
        assert "numpy has no virtual GPUs" in done.stderr
        return
    file = tmp_path / "times.json"
    said = output("virtual.py", "--backend", backend, "--rounds", "2", "--json", file)
    times = json.loads(file.read_text(encoding="utf-8"))[backend]
    assert [line.split(" | ")[1] for line in said.splitlines()[2:]] == list(times)
    for contenders in times.values():
        assert set(contenders) == {"cpu", "virtual", "cpu strict", "virtual strict"}
        assert all(len(taken) == 2 and min(taken) > 0 for taken in contenders.values())


@pytest.mark.usefixtures("plug_in")
@pytest.mark.parametrize("backend", ["torch"])
def test_random_numbers_compares_every_function_at_every_size(backend):
    said = output("random_numbers.py", "--rounds", "1").splitlines()
    sizes = said[0].split()[1:]
    assert (len(sizes), len(said)) == (4, 12)
    assert all(len(row[20:].split()) == len(sizes) for row in said[1:])


@pytest.mark.parametrize("backend", ["torch", "numpy"])
def test_growth_times_every_axis_and_draws_it(backend, tmp_path):
    if backend == "numpy":
        done = run("growth.py", "--backend", "numpy")
        assert done.returncode == 2
        assert "numpy has no virtual GPUs" in done.stderr
        return
    files = tmp_path / "rows.json", tmp_path / "picture.svg"
    few = ("--rounds", "1", "--largest", "10", "--virtual", "2")
    said = output("growth.py", "--backend", backend, *few, "--json", files[0], "--plot", files[1])
    rows = json.loads(files[0].read_text(encoding="utf-8"))
    assert [(row["axis"], row["size"]) for row in rows] == [
        ("leaves", 1),
        ("leaves", 10),
        ("depth", 1),
        ("depth", 10),
        ("devices", 1),
        ("devices", 2),
        ("bytes", 10_000),
        ("bytes", 100_000),
    ]
    for row in rows:
        assert {"by hand", "xdevice"} <= set(row["microseconds"])
        assert min(row["microseconds"].values()) > 0
    assert len([line for line in said.splitlines() if line.startswith("|")]) == len(rows) + 2
    assert "torch, leaves, time at the last size / the least: by hand " in said
    assert files[1].read_text(encoding="utf-8").startswith("<?xml")
