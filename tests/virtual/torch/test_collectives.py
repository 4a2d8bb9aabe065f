"""``torch.distributed`` where virtual GPUs stand in: what NCCL computes and refuses, in two processes."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("plug_in")

QUICK = "refused", "one_gpu", "computed"
OTHERS = "one_visible_gpu_each", "both", "in_detail", "split", "under_other_names"


def run(*jobs, words=()):
    start = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "xdevice",
        "emulate",
        "--gpus",
        "2",
        *words,
    ]
    program = str(Path(__file__).with_name("nccl.py"))
    done = subprocess.run([*start, program, *jobs], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr[-5000:]
    return done.stdout.split()


@pytest.mark.weekly
@pytest.mark.parametrize("jobs", [QUICK, OTHERS])
def test_groups_for_nccl_compute_and_refuse_what_nccl_does(jobs):
    assert run(*jobs) == [*jobs]


@pytest.mark.weekly
def test_lenient_groups_take_tensors_of_the_cpu_and_processes_share_a_gpu():
    assert run("lenient", words=["--lenient"]) == ["lenient"]
