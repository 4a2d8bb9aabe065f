"""examples/chapter.md: its tabs agree, but for what seeds explain."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import xdevice

CHAPTER = Path(__file__).parents[2] / "examples" / "chapter.md"
TABS = [
    name
    for name in ("torch", "tensorflow", "paddle", "mxnet", "jax")
    if name in xdevice.available()
]


@pytest.mark.parametrize(
    "tabs",
    [
        pytest.param(["torch", "jax"], id="two", marks=pytest.mark.weekly),
        pytest.param(TABS, id="all", marks=pytest.mark.weekly),
    ],
)
def test_the_tabs_agree_but_for_what_seeds_explain(tabs, compiler, tmp_path):
    if not set(tabs) <= set(TABS):
        pytest.skip("it needs PyTorch and JAX; the environment `all` has them")
    words = ["--gpus", "1", "--strict", "--json", "--tab", ",".join(tabs)]
    done = subprocess.run(
        [sys.executable, "-m", "xdevice", "chapter", *words, str(CHAPTER)],
        capture_output=True,
        text=True,
        timeout=1200,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    verdicts = [row["verdict"] for row in json.loads(done.stdout)["rows"]]
    assert verdicts == ["words", "silent", "seeds", "same"]
