"""A job of several processes under each framework's engine: it agrees, or names the failed rank."""

import random
import re

import pytest

from xdevice.framework.adapters import find

has_engine = pytest.mark.skip_backends(
    "numpy", "array_api_strict", reason="it has no gradients"
)  # NumPy has none, and says so: the last promise


@pytest.fixture
def first_job(fork_job, with_virtual_gpus):
    """A job of two processes with two virtual GPUs: the one that a push runs, whatever it costs."""
    return fork_job("differs", XDEVICE_VIRTUAL_GPUS="2")


@has_engine
@pytest.mark.frameworks("torch", "tensorflow", "paddle", "mxnet", "jax")
def test_results_agree_to_the_bit(first_job):
    assert first_job.status == 0, first_job.stderr
    for rank in (0, 1):
        agreed, differs = first_job.of(rank)[-2:]
        assert agreed == "agreed on 2"
        assert differs.startswith("DistributedError rank 1: rank 1 (process ")
        assert (
            "float32[3] on cpu at ['b|;'] where rank 0 gives float32[2] on cpu at ['b|;']"
            in differs
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


@pytest.mark.frameworks("jax")
@has_engine
def test_missing_and_disagreeing_ranks(fork_job):
    done = fork_job("meets")
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
