"""Files in a job of several processes: rank 0 writes, and all processes find the file."""

from pathlib import Path

import pytest

pytestmark = pytest.mark.frameworks("paddle")

SCRIPT = Path(__file__).with_name("saves.py")

has_engine = pytest.mark.skip_backends(
    "numpy", "array_api_strict", reason="it has no gradients"
)  # NumPy has none


def said(line):
    return line.startswith(("save: ", "barrier: "))  # engines print lines of their own


@has_engine
@pytest.mark.weekly
def test_rank_0_writes_for_all(backend, launch, tmp_path):
    (tmp_path / "run").mkdir()
    done = launch(backend, "writes", tmp_path / "run" / "file", script=SCRIPT)
    assert done.status == 0, done.stderr
    assert [done.of(rank)[-1] for rank in (0, 1)] == ["found [0.0, 0.0, 0.0] ['file']"] * 2


@pytest.mark.weekly
@has_engine
def test_all_processes_raise_the_error_of_rank_0(backend, launch, tmp_path):
    done = launch(backend, "fails", tmp_path, script=SCRIPT)
    lines = [[line for line in done.of(rank) if said(line)] for rank in (0, 1)]
    assert [len(of_one) for of_one in lines] == [2, 2], done.stderr
    (mine, then), (theirs, then_too) = lines
    assert mine.startswith("save: FileNotFoundError [Errno 2] cannot be written"), done.stderr
    assert theirs.startswith("save: DistributedError rank 0 ")
    assert "FileNotFoundError" in theirs
    assert then == then_too == "barrier: DistributedError"
