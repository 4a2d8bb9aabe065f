"""Virtual GPUs that stand in draw the random numbers that real GPUs were recorded drawing under PaddlePaddle."""

import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from recorded import ROWS, Recorded

pytestmark = pytest.mark.usefixtures("plug_in")
PROGRAM = str(Path(__file__).with_name("recorded.py"))
START = "-m", "xdevice", "emulate", "--gpus", "1", "--model", "v100", PROGRAM


@cache
def drawn(large: bool) -> list[list[list[float]]]:
    options = ["--large"] if large else []
    done = subprocess.run(
        [sys.executable, *START, *options],
        capture_output=True,
        text=True,
        env={name: value for name, value in os.environ.items() if name != "XDEVICE_VIRTUAL_GPUS"},
    )
    assert not done.returncode, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def decimals(number: str) -> int:
    return len(re.sub(r"e.*", "", number).partition(".")[2])


def check(row: Recorded) -> None:
    rows = [each for each in ROWS if each.large == row.large]
    results = drawn(row.large)[rows.index(row)]
    for (_, recorded), numbers in zip(row.draws, results, strict=True):
        for number, text in zip(numbers, recorded.split(), strict=True):
            # half of the last digit, and what the GPU's own sine and logarithm are wrong by
            tolerance = 0.5 * 10.0 ** -decimals(text) if "." in text else 0
            assert abs(number - float(text)) <= tolerance + 2e-6 * (1 + abs(number)) * bool(
                tolerance
            )


@pytest.mark.parametrize("row", [row for row in ROWS if not row.large], ids=lambda row: row.source)
def test_numbers_are_those_that_a_real_gpu_drew(row: Recorded):
    check(row)


@pytest.mark.weekly
@pytest.mark.parametrize("row", [row for row in ROWS if row.large], ids=lambda row: row.source)
def test_numbers_of_large_tensors_are_those_that_a_real_gpu_drew(row: Recorded):
    check(row)
