"""PyTorch's virtual GPUs that stand in: what CUDA does later than its caller goes on, or in no fixed order."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from xdevice.virtual.request import ENV

pytestmark = pytest.mark.usefixtures("plug_in")

HERE = Path(__file__).parent
RACES = HERE / "races.py"


def run(*arguments, status=0, **environment):
    """What the command prints, on stdout and stderr."""
    env = {name: value for name, value in os.environ.items() if name != ENV} | environment
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=280,
        env=env,
        cwd=HERE,
    )
    assert done.returncode == status, done.stdout[-6000:] + done.stderr[-3000:]
    return done.stdout, done.stderr


LATE = """
import torch
x = torch.ones(2, device="cuda")
host = x.to("cpu", non_blocking=True)
torch.use_deterministic_algorithms(True)
print(host.tolist(), torch.histc(x, 3).tolist())
"""


@pytest.mark.weekly
def test_a_program_that_never_waits_is_told_at_its_end(tmp_path):
    (tmp_path / "late.py").write_text(LATE.replace("torch.use", "print(host.tolist())\ntorch.use"))
    command = "-m", "xdevice", "emulate", "--gpus", "2"
    out, err = run(*command, tmp_path / "late.py", status=1)
    assert out == "[nan, nan]\n"
    assert "_histc_cuda with floating point input does not have a deterministic" in err
    assert (
        f"{tmp_path / 'late.py'}:4: RuntimeWarning: nothing has waited for a copy with non_blocking=True"
        in err
    )


@pytest.mark.weekly
def test_a_lenient_one_has_all_at_once(tmp_path):
    (tmp_path / "late.py").write_text(LATE)
    out, err = run("-m", "xdevice", "emulate", "--gpus=2", "--lenient", tmp_path / "late.py")
    assert out == "[1.0, 1.0] [0.0, 2.0, 0.0]\n"
    assert len(err.splitlines()) == 1


BUS = """
import time
import xdevice, torch

def seconds(wait):
    before = time.perf_counter()
    wait()
    return time.perf_counter() - before

memory = torch.ones(2, pin_memory=True)
for wait in (torch.cuda.synchronize, torch.cuda.current_stream().synchronize, torch.cuda.current_stream().query):
    memory.to("cuda", non_blocking=True)
    assert seconds(wait) >= 0.1, wait
free = torch.cuda.current_stream().record_event()
memory.to("cuda", non_blocking=True)
busy = torch.cuda.current_stream().record_event()
assert seconds(free.synchronize) < seconds(busy.synchronize)
print("done")
"""


@pytest.mark.weekly
def test_a_bus_has_carried_what_has_been_waited_for():
    out, _ = run("-c", BUS, **{ENV: "2:stand-in", "XDEVICE_VIRTUAL_BUS": "1GB/s,200000us"})
    assert out == "done\n"


def functions(*, with_race):
    """The names of the programs, and the lines of their races."""
    lines = RACES.read_text(encoding="utf-8").splitlines()
    found = {}
    for node in ast.parse(RACES.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            races = [
                n
                for n in range(node.lineno, node.end_lineno + 1)
                if lines[n - 1].endswith("# race")
            ]
            if bool(races) == with_race:
                found[node.name] = races
    return found


@pytest.mark.weekly
def test_races_are_found_with_their_lines_and_the_status_says_so():
    programs = functions(with_race=True)
    out, err = run(
        "-m",
        "xdevice",
        "emulate",
        "--gpus=2",
        "--races",
        RACES,
        *programs,
        status=1,
    )
    *found, done = out.splitlines()
    assert done == "done"
    assert err.count("CSAN detected a possible data race") == len(programs) == len(found) == 3
    for line, (name, races) in zip(found, programs.items(), strict=True):
        assert line.startswith(f"{name} CUDASanitizerErrors races.py:{races[0]} is "), line
        assert "and has not waited for races.py:" in line
        assert "on stream 0x" in line
        assert "on the default stream" in line


@pytest.mark.weekly
@pytest.mark.parametrize(
    "environment", [{ENV: "2:stand-in,races"}, {ENV: "2:stand-in", "TORCH_CUDA_SANITIZER": "1"}]
)
def test_no_right_program_has_races(environment):
    start = "import runpy, sys, xdevice; del sys.argv[0]; runpy.run_path(sys.argv[0], run_name='__main__')"
    out, err = run("-c", start, RACES, *functions(with_race=False), **environment)
    assert out == "done\n"
    assert "CSAN" not in err


def test_races_are_for_those_that_stand_in(tmp_path):
    (tmp_path / "script.py").write_text("print('ran')\n")
    _, err = run("-m", "xdevice", "run", "--races", tmp_path / "script.py", status=2)
    assert "unknown option '--races'" in err
