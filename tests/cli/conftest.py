"""The real command, run as a user runs it."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

_spec = importlib.util.spec_from_file_location("cli_toy", Path(__file__).with_name("toy.py"))
toy = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(toy)


@pytest.fixture
def with_toy(tmp_path):
    """Runs a command where a third party's framework is installed too, in a condition of one's choice."""

    def run(framework, *arguments, nvml=True, status=None, **env):
        done = subprocess.run(
            [sys.executable, "-m", "xdevice", *arguments],
            capture_output=True, text=True, timeout=300, cwd=tmp_path, env={**toy.write(tmp_path, framework, nvml), **env},
        )  # fmt: skip
        assert status is None or done.returncode == status, done.stderr
        return done

    return run


@pytest.fixture
def rows(with_toy):
    """The rows of ``xdevice info --json`` by framework, and the machine's."""

    def ask(framework, *arguments, **options):
        report = json.loads(with_toy(framework, "info", "--json", *arguments, status=0, **options).stdout)
        return {row["name"]: row for row in report["backends"]}, report["machine"]

    return ask
