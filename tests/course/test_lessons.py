"""The lessons in examples/lessons: their outputs are those of their code, under every framework that they have."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from xdevice.tools.course.read import Prose, read
from xdevice.tools.course.record import read_record, record_path, runs_of

LESSONS = sorted((Path(__file__).parents[2] / "examples" / "lessons").glob("*.md"))
on_each = pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)


@on_each
def test_every_cell_is_recorded_under_five_frameworks(path):
    chapter = read(path)
    runs = runs_of(read_record(record_path(path)), chapter)
    assert [run.tab for run in runs] == ["torch", "tensorflow", "paddle", "mxnet", "jax"]
    assert [outcome.state for run in runs for outcome in run.outcomes if not outcome.ran] == []
    prose = "\n".join(part.text for part in chapter.parts if isinstance(part, Prose))
    assert "\n## Exercises\n" in prose
    assert "\n## Answers\n" in prose


@pytest.mark.weekly
@on_each
def test_a_lesson_prints_what_was_recorded(path, backend):
    if backend not in read_record(record_path(path))["tabs"]:
        return  # NumPy has no GPUs, and the lesson may have no such tab
    command = ["chapter", "--gpus", "2", "--tab", backend, "--check", str(path)]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("XDEVICE")}
    done = subprocess.run(
        [sys.executable, "-m", "xdevice", *command],
        capture_output=True,
        text=True,
        timeout=600,
        env=clean,
    )
    assert done.returncode == 0, done.stdout + done.stderr
