"""The private names that virtual GPUs replace: each is listed, and one that is gone is an error that says so."""

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import xdevice
from xdevice.kit.virtual_request import ENV

PROGRAM = Path(__file__).with_name("names_replaced.py")


@pytest.fixture
def names_replaced(backend, plug_in):
    """Run the program for the framework, without virtual GPUs at its start; the lines that it prints come back."""

    def run(*options):
        clean = {name: value for name, value in os.environ.items() if name != ENV}
        command = [sys.executable, PROGRAM, str(backend), *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=150, env=clean)
        assert done.returncode == 0, done.stderr[-5000:]
        return done.stdout.splitlines()

    return run


@pytest.mark.weekly(but="--stand-in")
@pytest.mark.parametrize("option", ["--virtual", "--stand-in"])
def test_what_virtual_gpus_replace_is_what_the_adapter_lists(names_replaced, option):
    assert names_replaced(option) == []


@pytest.mark.weekly(but="jax")
def test_a_name_that_is_gone_is_named_with_the_version_and_the_last_that_works(names_replaced):
    owner = xdevice.backend()
    names = import_module(f"{owner.module}.private_names")
    name = next(name for name in reversed(names.STAND_IN) if not name.optional)
    (line,) = names_replaced("--stand-in", f"--without={name.path}")
    assert line == (
        f"virtual GPUs do not work under {owner} {owner.hardware.build()['version']}: {name.path.replace(':', '.')} is "
        f"not there, needed for {name.reason}; the last version tried is {names.LAST_TRIED}"
    )
