"""`benchmarks/on_gpu.py`, rehearsed on virtual GPUs: every part runs, and none is lost through another's failure."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.weekly

ON_GPU = Path(__file__).parents[2] / "benchmarks" / "on_gpu.py"
PARTS = ["machine", "transfers", "memory", "tests", "overhead", "bench"]


@pytest.fixture
def on_gpu(tmp_path):
    def run(*arguments, status):
        command = [sys.executable, ON_GPU, "--out", tmp_path / "out", "--quick", *arguments]
        done = subprocess.run(
            command, capture_output=True, encoding="utf-8", timeout=580, check=False
        )
        assert done.returncode == status, done.stdout[-3000:] + done.stderr[-3000:]
        report = json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))
        text = (tmp_path / "out" / "report.txt").read_text(encoding="utf-8")
        assert done.stdout.strip() == text.strip()
        return {(part["name"], part["backend"]): part for part in report["parts"]}, text

    return run


def test_every_part_reports_and_memory_that_runs_out_is_recovered(backend, on_gpu):
    if backend not in ("torch", "jax"):
        pytest.skip("on_gpu.py is for torch and jax")
    parts, text = on_gpu("--virtual", "--backend", backend, "--select", "test_counting", status=0)
    assert [name for name, _ in parts] == PARTS
    assert {part["status"] for part in parts.values()} == {"ok"}
    found = {name: part["results"] for (name, _), part in parts.items()}
    assert found["tests"]["passed"] >= 1
    assert found["tests"]["failed"] == 0
    rows = {row["label"]: row for row in found["transfers"]["rows"]}
    for label in ("to the GPU, pageable: to_device", "from the GPU: to_numpy"):
        assert rows[label]["gb_per_second"] > 0
    assert found["bench"]["rows"]
    assert found["overhead"]["rows"]
    assert "virtual GPU 0" in text
    assert "1 passed" in text
    memory = {row["label"]: row for row in found["memory"]["rows"]}
    tried = memory["batch sizes tried"]
    assert tried["value"][0] > tried["found"] == tried["again"] >= 1
    assert memory["recovered"]["value"] is True
    assert "out of memory even with a batch size" in memory["a size that cannot fit"]["value"]


def test_a_framework_without_a_gpu_is_skipped_and_the_report_says_why(on_gpu):
    parts, text = on_gpu("--backend", "numpy,ghost", "--parts", "machine,transfers,bench", status=0)
    for name, why in (("numpy", "numpy sees no GPU: "), ("ghost", "no backend 'ghost'")):
        for part in ("transfers", "bench"):
            assert parts[part, name]["status"] == "skipped"
            assert why in parts[part, name]["reason"]
    assert "transfers numpy: skipped" in text


def test_a_framework_that_crashes_does_not_stop_the_others(on_gpu, tmp_path):
    with zipfile.ZipFile(tmp_path / "crash-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("jax/__init__.py", "import os; print('last words', flush=True); os.abort()")
    parts, _ = on_gpu(
        "--backend", "jax,numpy", "--parts", "machine,transfers", "--wheels", tmp_path, status=1
    )
    for part in ("machine", "transfers"):
        assert parts[part, "jax"]["status"] == "crashed"
        assert "SIGABRT" in parts[part, "jax"]["reason"]
    assert parts["machine", "numpy"]["status"] == "ok"
    assert parts["machine", "numpy"]["results"]["rows"]


def test_a_part_that_hangs_is_ended_and_what_it_told_is_kept(on_gpu, tmp_path):
    with zipfile.ZipFile(tmp_path / "hang-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("jax/__init__.py", "import time; time.sleep(600)")
    arguments = ("--parts", "machine", "--wheels", tmp_path, "--minutes", "0.15")
    parts, _ = on_gpu("--backend", "jax,numpy", *arguments, status=1)
    assert parts["machine", "jax"]["status"] == "timed out"
    assert parts["machine", "jax"]["results"]["rows"][0]["label"] == "CPU"
    assert parts["machine", "numpy"]["status"] == "skipped"
    assert "no time was left" in parts["machine", "numpy"]["reason"]


def test_a_part_that_is_not_known_is_a_mistake():
    done = subprocess.run(
        [sys.executable, ON_GPU, "--parts", "tset"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "no part 'tset'" in done.stderr
