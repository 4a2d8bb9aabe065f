"""The script that measures how easy the source is on the eye: it runs; its figures are no gate."""

import subprocess
import sys
from pathlib import Path

import pytest

MIRROR = Path(__file__).parents[1] / "mirror.py"


@pytest.mark.weekly
def test_the_mirror_prints_a_row_for_each_folder():
    command = [sys.executable, str(MIRROR)]
    table = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    titles = {line[:34].strip() for line in table.splitlines()}
    assert {"models", "core", "backends", "xdevice/tensors", "backends/numpy"} <= titles


def test_the_mirror_lists_vague_names_with_their_lines(tmp_path):
    (tmp_path / "room.py").write_text("found = 1\ntensor = 2 if found else 3\n")
    command = [sys.executable, str(MIRROR), str(tmp_path), "--names"]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert output.splitlines()[-1] == f"{tmp_path / 'room.py'}:1: found"
    assert output.splitlines()[-2].split()[-6:] == ["2", "17.5", "0.0", "500.0", "0.0", "50.0"]
