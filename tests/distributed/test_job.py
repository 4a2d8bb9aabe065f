"""A job of several processes under each framework's engine: it agrees, or names the failed rank."""

import json
import os
import random
import re
from pathlib import Path

import pytest

from xdevice.distributed.launcher_variables import LOCALHOST, SOCKET
from xdevice.framework.adapters import find
from xdevice.tools.launcher.coordinator import Coordinator
from xdevice.tools.launcher.worker_group import Plan, free_port

WORKER = Path(__file__).with_name("worker.py")

has_engine = pytest.mark.skip_backends(
    "numpy", "array_api_strict", reason="it has no gradients"
)  # NumPy has none, and says so: the last promise


FORKED = f"""
import json, os, runpy, signal, sys
of_ranks = json.loads(os.environ["OF_RANKS"])
child = os.fork()
os.environ.update(of_ranks[0 if child else 1])
signal.alarm(100)
sys.argv = [{str(WORKER)!r}, "differs"]
runpy.run_path(sys.argv[0], run_name="__main__")
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.fixture
def first_job(backend, launch, in_a_fork, with_virtual_gpus, pytestconfig):
    """The status, the lines and the errors of a job with two virtual GPUs in each of two processes.

    The processes are forks of one that has imported the framework, and meet as those of our launcher
    do. Those of a framework that is imported after virtual GPUs are asked for are the launcher's.
    """
    late = pytestconfig.pluginmanager.get_plugin("processes").IMPORTED_LATE
    gpus = {"XDEVICE_VIRTUAL_GPUS": "2"}
    if backend in late or not hasattr(os, "fork"):
        done = launch(backend, "differs", **gpus)
        return done.status, done.of(0) + done.of(1), done.stderr
    plan, coordinator = Plan((), 2, {}), Coordinator(2)
    coordinator.start()
    job = {
        "XDEVICE_BACKEND": backend,
        "OF_RANKS": json.dumps([plan.variables(rank) for rank in (0, 1)]),
        SOCKET: coordinator.path,
        "MASTER_ADDR": LOCALHOST,
        "MASTER_PORT": str(free_port()),
    }
    hidden = {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}
    try:
        done = in_a_fork(backend, FORKED, **job, **gpus, **hidden)
    finally:
        coordinator.stop()
    return done.returncode, done.stdout.splitlines(), done.stderr


@has_engine
@pytest.mark.frameworks("torch", "tensorflow", "paddle", "mxnet", "jax")
def test_results_agree_to_the_bit(first_job):
    status, lines, errors = first_job
    assert status == 0, errors
    assert lines.count("agreed on 2") == 2, lines
    differ = [line for line in lines if line.startswith("DistributedError")]
    assert len(differ) == 2, lines
    for line in differ:
        assert line.startswith("DistributedError rank 1: rank 1 (process ")
        assert (
            "float32[3] on cpu at ['b|;'] where rank 0 gives float32[2] on cpu at ['b|;']" in line
        )


@pytest.mark.weekly
@has_engine
def test_every_dtype_agrees(backend, launch, with_virtual_gpus):
    done = launch(backend, "agrees", XDEVICE_VIRTUAL_GPUS="2")
    assert done.status == 0, done.stderr
    assert [done.of(rank)[-1] for rank in (0, 1)] == ["agreed on 2"] * 2


@pytest.mark.weekly
@has_engine
def test_the_mean_of_equals_is_exact(backend, launch):
    done = launch(backend, "means_are_exact", n=3)
    assert done.status == 0, done.stderr
    assert [done.of(rank)[-1] for rank in range(3)] == ["exact"] * 3


@pytest.mark.weekly
@has_engine
def test_one_host_listens_on_loopback_only(backend, launch):
    done = launch(backend, "listens")
    assert done.status == 0, done.stderr
    for rank in (0, 1):
        sockets, of_launcher = done.of(rank)[-2:]
        assert sockets.endswith(" listen, reachable by other hosts: []")
        assert of_launcher == "of the launcher: []"


@pytest.mark.frameworks("paddle")
@has_engine
def test_missing_and_disagreeing_ranks(backend, launch):
    done = launch(backend, "meets")
    assert done.status == 0, done.stderr
    assert "xdevice" not in done.stderr  # at their end, too
    missing, disagrees, twice = done.of(0)
    assert missing.startswith(
        "DistributedTimeoutError rank 1: rank 1 did not come: rank 0 of 2 came within 1 s"
    )
    assert re.fullmatch(
        r"DistributedError rank 1: rank 1 \(process \d+\) has timeout 61.0, and rank 0 has 60.0; start all alike",
        disagrees,
    )
    assert twice.startswith("DistributedError rank 0: rank 0 is there twice: processes ")
    assert done.of(1) == [disagrees, twice]


@pytest.mark.frameworks("paddle")
@has_engine
@pytest.mark.parametrize(
    ("scenario", "status", "says"),
    [
        ("killed", 128 + 14, "rank 1 was killed by SIGALRM"),
        pytest.param("raising", 1, "ValueError: a mistake of rank 1", marks=pytest.mark.weekly),
    ],
)
def test_a_failed_process_is_named(backend, launch, scenario, status, says):
    done = launch(backend, scenario)
    assert done.status == status, done.stderr
    assert says in done.stderr[-1500:], done.stderr


@pytest.mark.weekly
@has_engine
def test_a_frozen_process_is_named(backend, launch):
    where = random.choice(["barrier", "work", "end"])
    done = launch(backend, "frozen", where)
    assert done.status == 75, (where, done.stderr)
    assert re.search(
        r" waited 4 s in.*; rank 1 \(process .*does not answer: it is stopped", done.stderr
    ), (
        where,
        done.stderr,
    )


@pytest.mark.frameworks("numpy")
def test_a_framework_without_an_engine(backend, launch):
    done = launch(backend, "leaving", XDEVICE_TIMEOUT="600")
    if backend == "numpy":
        assert done.status == 1
        assert "NotSupportedError: numpy has no engine for several processes: " in done.stderr
    else:
        assert find(backend).engine.start
        assert done.status == 3  # what rank 1 has left with
