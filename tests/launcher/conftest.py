"""The real launcher on toy scripts, which need no framework."""

import os
import subprocess
import sys
import textwrap
import time

import psutil
import pytest

CLEAN = {
    k: v for k, v in os.environ.items() if not k.startswith(("XDEVICE", "OMP_", "PYTHONUNBUFFERED"))
}

PRELUDE = """\
import os, signal, socket, subprocess, sys, time
rank = int(os.environ["XDEVICE_RANK"])

def note(name, text=""):
    with open(f"{name}.new", "w") as file:
        file.write(str(text))
    os.rename(f"{name}.new", name)  # there at once, and whole

"""


@pytest.fixture
def script(tmp_path):
    """Writes a script that has ``rank``, and ``note(name, text)``, which writes a file; returns its path."""

    def write(code, name="toy.py"):
        (tmp_path / name).write_text(PRELUDE + textwrap.dedent(code), encoding="utf-8")
        return name

    return write


@pytest.fixture
def start(tmp_path, with_ctrl_c):
    """Starts ``xdevice launch``, and kills all of its processes after the test."""
    started = []

    def begin(*arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **env):
        command = [*with_ctrl_c, sys.executable, "-m", "xdevice", "launch", *map(str, arguments)]
        pipes = {"stdin": subprocess.DEVNULL, "stdout": stdout, "stderr": stderr}
        launcher = subprocess.Popen(command, cwd=tmp_path, env={**CLEAN, **env}, **pipes)
        started.append(launcher)
        return launcher

    yield begin
    for launcher in started:
        launcher.kill()  # whatever it had started ends with it
        launcher.communicate()


@pytest.fixture
def launch(start):
    """Runs ``xdevice launch`` to its end: its exit status, and its output as bytes."""

    def run(*arguments, **env):
        launcher = start(*arguments, **env)
        out, err = launcher.communicate(timeout=60)
        return subprocess.CompletedProcess(arguments, launcher.returncode, out, err)

    return run


@pytest.fixture
def noted(tmp_path):
    """The text that the script has noted under that name, once it has."""

    def read(name, within=60):
        deadline = time.monotonic() + within
        while not (tmp_path / name).exists():
            assert time.monotonic() < deadline, f"the script has not come to note {name!r}"
            time.sleep(0.01)
        return (tmp_path / name).read_text(encoding="utf-8")

    return read


@pytest.fixture
def gone():
    """Whether all these processes end within so many seconds."""

    def ask(*pids, within=0.0):
        deadline = time.monotonic() + within
        while any(map(runs, pids)) and time.monotonic() < deadline:
            time.sleep(0.02)
        return not any(map(runs, pids))

    return ask


def runs(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
