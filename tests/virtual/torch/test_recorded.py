"""Virtual GPUs that stand in draw the random numbers that real GPUs were recorded drawing."""

import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from xdevice.virtual.request import ENV

sys.path.insert(0, str(Path(__file__).parent))
from recorded import ROWS
from recording import Recorded

pytestmark = [pytest.mark.weekly, pytest.mark.usefixtures("plug_in")]
PROGRAM = Path(__file__).with_name("recorded.py")


@cache
def drawn() -> list[list[float]]:
    done = subprocess.run(
        [sys.executable, PROGRAM],
        capture_output=True,
        text=True,
        timeout=280,
        env=os.environ | {ENV: "1:stand-in"},
    )
    assert not done.returncode, done.stderr
    return json.loads(done.stdout)


def decimals(number: str) -> int:
    return len(re.sub(r"e.*", "", number).partition(".")[2])


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.draw[:30]} of {row.source[:30]}")
def test_numbers_are_those_that_a_real_gpu_drew(row: Recorded):
    numbers, recorded = drawn()[ROWS.index(row)], row.values.split()
    assert len(numbers) == len(recorded)
    for number, text in zip(numbers, recorded, strict=True):
        # half of the last digit, and what the GPU's own sine and logarithm are wrong by
        half_digit = 0.5 * 10.0 ** -decimals(text)
        assert abs(number - float(text)) <= half_digit + row.relative * (1 + abs(number))
