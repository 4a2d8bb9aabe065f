"""The benchmarks run and say what they promise to say. What they measure is not asserted: the machine decides that."""

import importlib.util
import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@cache
def run(script, *arguments, status=0):
    done = subprocess.run(
        [sys.executable, BENCHMARKS / script, *arguments],
        capture_output=True,
        encoding="utf-8",
        env=None,
        timeout=300,
        check=False,
    )
    assert done.returncode == status, done.stderr[-2000:]
    return done.stdout if status == 0 else done.stderr


def contenders():
    spec = importlib.util.spec_from_file_location("contenders", BENCHMARKS / "contenders.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["contenders"] = module  # its dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module
