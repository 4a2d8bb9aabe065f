"""Jobs of real processes, started as a user starts them: with ``xdevice launch``."""

import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("worker.py")
MARK = "XDEVICE_TEST_JOB"


class Done:
    """What came of a job: its status, what it printed, in order of ranks or as it came, and how long it took."""

    def __init__(self, completed, seconds):
        self.status, self.seconds = completed.returncode, seconds
        self.stdout, self.stderr = completed.stdout, completed.stderr

    def of(self, rank):
        """The lines that a rank has printed."""
        return [line.removeprefix(f"[{rank}] ") for line in self.stdout.splitlines() if line.startswith(f"[{rank}] ")]

    @property
    def last(self):
        return [line for line in self.stderr.splitlines() if line.strip()][-1]


def left_behind(mark):
    """The processes of a job that are still there; the kernel may take a moment to clear those that were killed."""
    until = time.monotonic() + 5
    while found := _marked(mark):
        if time.monotonic() > until:
            break
        time.sleep(0.05)
    for pid in found:
        os.kill(pid, signal.SIGKILL)
    return found


def _marked(mark):
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                alive = (process / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
                if alive and f"{MARK}={mark}".encode() in (process / "environ").read_bytes().split(b"\0"):
                    found.append(int(process.name))
            except OSError:
                pass  # it ended meanwhile, or is not ours to read
    return found


@pytest.fixture
def environment():
    """The environment of a job's processes, and its mark."""
    mark = uuid.uuid4().hex
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("XDEVICE_", "OMP_"))}
    return {**kept, MARK: mark, "TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}


@pytest.fixture
def launch(environment):
    """Runs a job to its end, and sees that it leaves no process."""

    def run(backend, *arguments, n=2, script=WORKER, options=(), limit=100, **env):
        options = [str(n), "--backend", str(backend), "--time-limit", str(limit), *map(str, options)]
        command = [sys.executable, "-m", "xdevice", "launch", "-n", *options, str(script), *map(str, arguments)]
        began = time.monotonic()
        completed = subprocess.run(
            command, env={**environment, **env}, capture_output=True, text=True, timeout=limit + 30, check=False
        )
        done = Done(completed, time.monotonic() - began)
        assert left_behind(environment[MARK]) == [], "processes have survived the job"
        return done

    return run
