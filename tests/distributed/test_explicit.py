"""Explicit configuration: `init` is given the rank, and mistakes are reported."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import xdevice
from xdevice import distributed as dist
from xdevice.distributed import group
from xdevice.distributed.init_options import InitOptions
from xdevice.distributed.lifetime import check_reach
from xdevice.tools.launcher.worker_group import free_port

pytestmark = pytest.mark.frameworks("paddle")

SPAWNS = Path(__file__).with_name("spawns.py")
GIVEN = {
    "rank": 1,
    "world_size": 2,
    "address": "127.0.0.1:29400",
    "local_rank": None,
}


def job_of(**changes):
    return InitOptions(**{**GIVEN, **changes}).job({})


@pytest.mark.skip_backends("numpy", "array_api_strict", reason="it has no gradients")
@pytest.mark.weekly
def test_processes_without_a_launcher(backend, environment):
    address = f"127.0.0.1:{free_port()}"
    command = [sys.executable, SPAWNS, str(backend), address]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("(")]
    assert sorted(lines) == ["(0, 0, 2) [3.0, 4.0] 0", "(1, 0, 2) [3.0, 4.0] 1"]


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        (
            {"rank": None},
            xdevice.ArgumentError,
            "init() was given world_size, address without rank; give all three",
        ),
        (
            {"world_size": None, "address": None},
            xdevice.ArgumentError,
            "rank without world_size and address",
        ),
        ({"rank": "1"}, xdevice.ArgumentTypeError, "rank='1' is not an integer"),
        ({"rank": True}, xdevice.ArgumentTypeError, "rank=True is not an integer"),
        ({"rank": 2}, xdevice.ArgumentError, "rank=2 is not an integer from 0 to 1"),
        ({"rank": -1}, xdevice.ArgumentError, "rank=-1 is not an integer from 0 to 1"),
        ({"world_size": 0}, xdevice.ArgumentError, "world_size=0 is not an integer of 1 or more"),
        ({"world_size": 2.0}, xdevice.ArgumentTypeError, "world_size=2.0 is not an integer"),
        ({"local_rank": 2}, xdevice.ArgumentError, "local_rank=2 is not an integer from 0 to 1"),
        (
            {"address": ("head", 29400)},
            xdevice.ArgumentTypeError,
            "is not a string; give rank 0's, as in",
        ),
        ({"address": "head"}, xdevice.ArgumentError, "address='head' is not a host and a port"),
        ({"address": ":29400"}, xdevice.ArgumentError, "is not a host and a port"),
        ({"address": "head:port"}, xdevice.ArgumentError, "is not a host and a port"),
        ({"address": "head:0"}, xdevice.ArgumentError, "is not a host and a port"),
        ({"address": "head:65536"}, xdevice.ArgumentError, "is not a host and a port"),
        (
            {"address": "[fd00::2]:29400"},
            xdevice.ArgumentError,
            "'[fd00::2]' is an IPv6 address, by which engines cannot meet; give an IPv4 address",
        ),
        (
            {"address": "head:29400"},
            xdevice.ArgumentError,
            "no local_rank; give one, from 0 on each host",
        ),
    ],
)
def test_wrong_arguments_of_init(change, error, says):
    with pytest.raises(error) as raised:
        job_of(**change)
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_contradicted_rank_is_an_error():
    env = {
        "RANK": "0",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "0",
        "MASTER_ADDR": "a",
        "MASTER_PORT": "29400",
    }
    with pytest.raises(xdevice.ArgumentError) as raised:
        InitOptions(**GIVEN).job(env)
    assert str(raised.value) == (
        "init() was given rank 1 of 2, and torchrun says rank 0 of 4; leave out rank and "
        "world_size, or unset RANK and WORLD_SIZE"
    )
    agreeing = InitOptions(**GIVEN).job({**env, "RANK": "1", "WORLD_SIZE": "2"})
    assert (agreeing.rank, agreeing.local_world_size, agreeing.master) == (1, 2, "127.0.0.1:29400")


def test_the_rank_stays_until_the_next_init(monkeypatch):
    monkeypatch.setattr(group.state, "job", None)
    with xdevice.using("numpy"):
        dist.init(rank=0, world_size=1, address="127.0.0.1:29400")
        assert (dist.rank(), dist.world_size(), group.state.job.launcher) == (
            0,
            1,
            "init()",
        )
        dist.shutdown()
        dist.init()
        assert group.state.job.launcher != "init()"
        dist.shutdown()


def test_beyond_one_host_needs_trust():
    far = job_of(address="10.0.0.1:29400", local_rank=0)
    with pytest.raises(xdevice.DistributedError) as raised:
        check_reach(far, "the engine of torch")
    assert str(raised.value) == (
        "the engine of torch lets any process connect that reaches this host; on a network that "
        "you trust, set XDEVICE_TRUST_NETWORK=1, or call init(trust_network=True)"
    )
    check_reach(replace(far, trusts_network=True), "the engine of torch")
    check_reach(job_of(), "the engine of torch")


@pytest.mark.skip_backends("numpy", "array_api_strict", reason="it has no gradients")
def test_without_trust_nothing_listens(backend, monkeypatch):
    monkeypatch.setattr(group.state, "job", None)
    monkeypatch.delenv("XDEVICE_TRUST_NETWORK", raising=False)
    place = {
        "rank": 0,
        "world_size": 2,
        "address": "10.0.0.1:29400",
        "local_rank": 0,
    }
    with (
        xdevice.using(backend),
        pytest.raises(xdevice.DistributedError, match=f"the engine of {backend} lets any process"),
    ):
        dist.init(**place)
    assert not dist.is_initialized()


def test_trust_by_argument_or_variable(monkeypatch):
    monkeypatch.delenv("XDEVICE_TRUST_NETWORK", raising=False)
    assert not InitOptions().trusts_network()
    assert InitOptions(trust_network=True).trusts_network()
    monkeypatch.setenv("XDEVICE_TRUST_NETWORK", "1")
    assert InitOptions().trusts_network()
    assert not InitOptions(trust_network=False).trusts_network()
    monkeypatch.setenv("XDEVICE_TRUST_NETWORK", "yes")
    with pytest.raises(xdevice.ArgumentError, match="XDEVICE_TRUST_NETWORK='yes' is not 0 or 1"):
        InitOptions().trusts_network()
    with pytest.raises(xdevice.ArgumentTypeError, match="trust_network=1 is not a boolean"):
        InitOptions(trust_network=1).trusts_network()
