"""The real command, run as a user runs it."""

import importlib.util
import json
import os
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from xdevice.tools.cli import main

_spec = importlib.util.spec_from_file_location("cli_toy", Path(__file__).with_name("toy.py"))
_toy = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_toy)


@pytest.fixture
def command(capsys, monkeypatch, tmp_path):
    """Call a command in this process: for help and mistakes, which start nothing."""
    monkeypatch.delenv("XDEVICE_BACKEND", raising=False)
    monkeypatch.chdir(tmp_path)

    def call(*words):
        before = dict(os.environ)
        try:
            status = main(list(map(str, words)))
        except SystemExit as end:
            status = end.code
        assert dict(os.environ) == before, "this command changes its process: run it in a fork"
        return CompletedProcess(words, status, *capsys.readouterr())

    return call


@pytest.fixture
def toy():
    """What writes a third party's framework, the module toy.py."""
    return _toy


@pytest.fixture
def with_toy(toy, tmp_path, python, new_python):
    """Runs a command where a third party's framework is installed too, in a condition of one's choice."""

    def run(framework, *arguments, nvml=True, status=None, cwd=tmp_path, umask=-1, **env):
        env = {**toy.write(tmp_path, framework, nvml), **env}
        if umask == -1 and "LD_LIBRARY_PATH" not in env:
            done = python("-m", "xdevice", *arguments, env=env, cwd=cwd)
        else:  # a process has these from its start
            done = new_python("-m", "xdevice", *arguments, env=env, cwd=cwd, umask=umask)
        assert status is None or done.returncode == status, done.stderr
        return done

    return run


@pytest.fixture
def rows(with_toy):
    """The rows of ``xdevice info --json`` by framework, and the machine's."""

    def ask(framework, *arguments, **options):
        report = json.loads(
            with_toy(framework, "info", "--json", *arguments, status=0, **options).stdout
        )
        return {row["name"]: row for row in report["backends"]}, report["machine"]

    return ask
