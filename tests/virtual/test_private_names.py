"""The private names that virtual GPUs replace: each is listed, and one that is gone costs the feature that needs it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from xdevice.virtual.request import ENV

HERE = Path(__file__).parent


def _program(name, backend, seconds):
    """Runs that program for the framework, without virtual GPUs at its start; the lines that it prints come back."""

    def run(*options):
        clean = {key: value for key, value in os.environ.items() if key != ENV}
        command = [sys.executable, HERE / name, str(backend), *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, env=clean)
        assert done.returncode == 0, done.stderr[-5000:]
        print(done.stderr)
        return done.stdout.splitlines()

    return run


@pytest.fixture
def names_replaced(backend, plug_in):
    return _program("names_replaced.py", backend, 300)


@pytest.fixture
def names_removed(backend, plug_in):
    return _program("names_removed.py", backend, 1500)


@pytest.mark.weekly
@pytest.mark.parametrize("option", ["--virtual", "--stand-in"])
def test_what_virtual_gpus_replace_is_what_the_adapter_lists(names_replaced, option):
    assert names_replaced(option) == []


@pytest.mark.weekly
@pytest.mark.parametrize("option", ["--virtual", "--stand-in"])
def test_without_a_name_the_feature_that_needs_it_is_missing_and_nothing_else(
    names_removed, option
):
    assert names_removed(option) == []
