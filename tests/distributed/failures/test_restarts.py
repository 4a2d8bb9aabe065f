"""A killed job goes on from its last file, and ends with the same bits."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import xdevice

pytestmark = pytest.mark.frameworks("paddle")

EXAMPLES = Path(__file__).parents[3] / "examples"

TRAINS = f"""
import os, sys
sys.path.insert(0, {str(EXAMPLES)!r})
import resume
from xdevice import distributed

with distributed.process_group():
    for name in ["broken"] + ["whole"] * int(os.environ["XDEVICE_RESTART"]):
        sys.argv[1:] = ["--checkpoint", name, "--steps", "30", "--every", "3", "--pause", "0.05"]
        resume.train(resume.parse_arguments())
"""


@pytest.fixture
def training(backend, environment, tmp_path):
    """Two runs of a job that trains: one that is killed and restarts, and one without a restart."""
    (tmp_path / "trains.py").write_text(TRAINS, encoding="utf-8")
    command = [
        "-m",
        "xdevice",
        "launch",
        "-n",
        2,
        "--backend",
        backend,
        "--time-limit",
        150,
        "--restarts",
        1,
    ]
    launcher = subprocess.Popen(
        [sys.executable, *map(str, command), "trains.py"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    yield launcher
    launcher.kill()
    launcher.communicate()


def process_of(launcher, rank):
    """The process id of that rank."""
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                mine = (
                    int((process / "stat").read_text().rpartition(")")[2].split()[1])
                    == launcher.pid
                )
                if mine and f"XDEVICE_RANK={rank}".encode() in (
                    process / "environ"
                ).read_bytes().split(b"\0"):
                    return int(process.name)
            except OSError:
                pass  # it ended meanwhile
    raise AssertionError(f"no process of rank {rank}")


@pytest.mark.weekly
@pytest.mark.skip_backends("numpy", "array_api_strict", reason="it has no gradients")
def test_a_kill_changes_no_bit(training, tmp_path):
    while not (tmp_path / "broken").exists():
        assert training.poll() is None, training.stderr.read()
        time.sleep(0.01)
    rank, moment = random.randrange(2), random.uniform(0, 0.5)
    time.sleep(moment)
    os.kill(process_of(training, rank), signal.SIGKILL)
    stdout, stderr = training.communicate(timeout=160)
    seen = f"rank {rank} was killed {moment:.3f} s after the first file: {stdout} {stderr}"
    assert training.returncode == 0, seen
    assert "xdevice: restart 1 of 1" in stderr, seen
    first, second, third = (
        int(line.split()[-1]) for line in stdout.splitlines() if "begins at step" in line
    )
    assert first == third == 0, seen
    assert 0 < second < 30, seen
    assert second % 3 == 0, seen
    with xdevice.using("numpy"):
        broken, whole = (xdevice.load(tmp_path / name) for name in ("broken", "whole"))
    assert broken["step"] == whole["step"] == 30
    for part in ("params", "momentum"):
        for name, values in whole[part].items():
            assert broken[part][name].tobytes() == values.tobytes(), (name, seen)


@pytest.mark.weekly
@pytest.mark.skip_backends("numpy", "array_api_strict", reason="it has no gradients")
def test_an_unreadable_checkpoint_is_passed_over(backend, tmp_path, environment):
    """Every process loads the one before it, and the next save does not overwrite that one."""
    file = tmp_path / "net"
    command = [
        sys.executable,
        "-m",
        "xdevice",
        "launch",
        "-n",
        "2",
        "--backend",
        backend,
        str(EXAMPLES / "resume.py"),
    ]
    command += ["--checkpoint", str(file), "--every", "5", "--steps"]
    run = {"env": environment, "capture_output": True, "text": True, "timeout": 150, "check": True}
    subprocess.run([*command, "10"], **run)
    file.write_bytes(file.read_bytes()[:-7])
    again = subprocess.run([*command, "15"], **run).stdout
    assert "[0] begins at step 5" in again
    assert "that cannot be read: " in again
    with xdevice.using("numpy"):
        steps = [xdevice.load(path)["step"] for path in (file, tmp_path / "net.before")]
    assert steps == [15, 10]
    assert (tmp_path / "net.unreadable").exists()
