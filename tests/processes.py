"""Fixtures that run code in processes of their own."""

import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def in_a_fork(tmp_path_factory):
    """Run programs of a framework, each in a fork of one process that has imported it.

    What is returned is as of `subprocess.run`. ``start`` are Python's arguments before the program.
    """
    processes = {}

    def run(framework, code, *start, **environment):
        if not start and framework in ("paddle", "mxnet"):
            framework = (
                "numpy"  # they ask for virtual GPUs, or for xdevice, before they are imported
            )
        if (framework, start) not in processes:
            command = [sys.executable, *start, HERE / "forks.py", framework]
            env = {
                name: text for name, text in os.environ.items() if not name.startswith("XDEVICE")
            }
            processes[framework, start] = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
            )
        process = processes[framework, start]
        folder = tmp_path_factory.mktemp("program")
        program, out, err = (folder / name for name in ("program.py", "out", "err"))
        program.write_text(code, encoding="utf-8")
        out.touch()
        err.touch()
        paths = {"folder": folder, "path": program, "out": out, "err": err}
        request = {name: str(path) for name, path in paths.items()} | {"environment": environment}
        print(json.dumps(request), file=process.stdin, flush=True)
        status = process.stdout.readline()
        assert status, f"it has not started: {process.args}"
        texts = [file.read_text("utf-8") for file in (out, err)]
        return subprocess.CompletedProcess(process.args, int(status), *texts)

    yield run
    for process in processes.values():
        with process:  # which closes its input, and waits for it
            pass


@pytest.fixture(scope="session")
def with_ctrl_c():
    """The words before a command that make it receive Ctrl-C and SIGHUP.

    Tests that run in the background ignore these signals, and their child processes would, too.
    """
    code = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
os.execvp(sys.argv[1], sys.argv[1:])
"""
    return [sys.executable, "-c", code]


@pytest.fixture
def toy_path(tmp_path):
    """A folder with a toy framework and its adapter, registered by an entry point."""
    return shutil.copytree(HERE / "toy", tmp_path, dirs_exist_ok=True)


@pytest.fixture
def run(toy_path, tmp_path):
    """A function that runs code in a new process, which can use the toy framework."""

    def run(code, **env):
        path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
        clean = {k: v for k, v in os.environ.items() if not k.startswith("XDEVICE")}
        process = subprocess.run(
            [sys.executable, "-c", "import xdevice\n" + textwrap.dedent(code)],
            capture_output=True,
            text=True,
            timeout=300,
            env={**clean, "PYTHONPATH": path, **env},
            cwd=tmp_path,
        )
        assert process.returncode == 0, process.stderr
        return process.stdout.strip()

    return run
