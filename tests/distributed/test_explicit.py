"""Explicit configuration: `init` is given the rank, and mistakes are reported."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

import xdevice
from xdevice import distributed as dist
from xdevice.distributed import group
from xdevice.distributed.init_options import InitOptions
from xdevice.distributed.lifetime import check_reach
from xdevice.distributed.membership import Membership
from xdevice.distributed.process_info import ProcessInfo, block_size
from xdevice.distributed.rendezvous.ports import free_block

pytestmark = pytest.mark.frameworks("paddle")

SPAWNS = Path(__file__).with_name("spawns.py")
GIVEN = {
    "rank": 1,
    "world_size": 2,
    "address": "127.0.0.1:29400",
    "local_rank": None,
    "token": None,
}


def info_of(**changes):
    return InitOptions(**{**GIVEN, **changes}).process_info({})


@pytest.mark.skip_backends("numpy", "array_api_strict", reason="it has no gradients")
def test_processes_without_a_launcher(backend, environment):
    address = f"127.0.0.1:{free_block(block_size(2))}"
    command = [sys.executable, SPAWNS, str(backend), address]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("(")]
    assert sorted(lines) == ["(0, 0, 2) [3.0, 4.0] 0", "(1, 0, 2) [3.0, 4.0] 1"]


@pytest.mark.weekly
def test_other_tokens_do_not_join():
    address = f"127.0.0.1:{free_block(block_size(2))}"
    words = {"backend": "numpy", "engine": "mpi", "version": "0", "timeout": 5.0}

    def meet(rank):
        with pytest.raises(xdevice.DistributedError) as raised:
            Membership(info_of(rank=rank, address=address, token=f"{rank}" * 32), 5.0, words)
        return str(raised.value)

    with ThreadPoolExecutor(2) as pool:
        late, refused = pool.map(meet, range(2))
    assert refused.startswith(f"rank 0 (at {address}) does not accept this process's token"), (
        refused
    )
    assert late.startswith("rank 1 did not come"), late


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
        (
            {"rank": None, "world_size": None, "address": None, "token": "x" * 16},
            xdevice.ArgumentError,
            "token without rank and world_size and address",
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
        (
            {"address": "head:65533"},
            xdevice.ArgumentError,
            "leaves no room for the job's 7 ports; give a lower port",
        ),
        ({"address": "head:0"}, xdevice.ArgumentError, "leaves no room"),
        (
            {"address": "head:29400"},
            xdevice.ArgumentError,
            "no local_rank; give one, from 0 on each host",
        ),
        (
            {"token": b"x" * 32},
            xdevice.ArgumentTypeError,
            "token is of type bytes; give all processes the same",
        ),
        ({"token": "short"}, xdevice.ArgumentError, "token has 5 characters; give at least 16"),
    ],
)
def test_wrong_arguments_of_init(change, error, says):
    with pytest.raises(error) as raised:
        info_of(**change)
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
        InitOptions(**GIVEN).process_info(env)
    assert str(raised.value) == (
        "init() was given rank 1 of 2, and torchrun says rank 0 of 4; leave out rank and "
        "world_size, or unset RANK and WORLD_SIZE"
    )
    agreeing = InitOptions(**GIVEN).process_info({**env, "RANK": "1", "WORLD_SIZE": "2"})
    assert agreeing == ProcessInfo(1, 2, 1, "127.0.0.1", 29400, "init()")


def test_no_token_in_repr_and_ipv6():
    found = info_of(address="[::1]:29400", token="s" * 16)
    assert (found.host, found.token) == ("::1", "s" * 16)
    assert "sss" not in repr(found)


def test_ipv6_is_refused_before_anything_listens(monkeypatch):
    monkeypatch.setenv("XDEVICE_TRUST_NETWORK", "1")
    monkeypatch.setattr(group.state, "info", None)
    for address, host in (("[fd00::2]:29400", ""), ("10.0.0.1:29400", "fd00::2")):
        monkeypatch.setenv("XDEVICE_HOST", host)
        with (
            xdevice.using("numpy"),
            pytest.raises(xdevice.ArgumentError, match=r"'fd00::2' is an IPv6 address.*IPv4"),
        ):
            dist.init(
                rank=0, world_size=2, local_rank=0, address=address, engine="mpi", token="s" * 16
            )


def test_the_rank_stays_until_the_next_init(monkeypatch):
    monkeypatch.setattr(group.state, "info", None)
    with xdevice.using("numpy"):
        dist.init(rank=0, world_size=1, address="127.0.0.1:29400")
        assert (dist.rank(), dist.world_size(), group.state.process_info().launcher) == (
            0,
            1,
            "init()",
        )
        dist.shutdown()
        dist.init()
        assert group.state.process_info().launcher != "init()"
        dist.shutdown()


def test_beyond_loopback_needs_trust(monkeypatch):
    far, near = (
        ProcessInfo(0, 2, 0, "10.0.0.1", 29400, "srun"),
        ProcessInfo(0, 2, 0, "127.0.0.1", 29400, "srun"),
    )
    monkeypatch.delenv("XDEVICE_HOST", raising=False)
    with pytest.raises(xdevice.DistributedError) as raised:
        check_reach(far, "the engine of torch")
    assert str(raised.value) == (
        "the engine of torch lets any process connect that reaches 10.0.0.1; on a network that you trust, start with "
        "xdevice launch --trust-network, XDEVICE_TRUST_NETWORK=1, or init(trust_network=True)"
    )
    check_reach(replace(far, trusts_network=True), "the engine of torch")
    check_reach(near, "the engine of torch")
    monkeypatch.setenv("XDEVICE_HOST", "10.0.0.2")
    with pytest.raises(xdevice.DistributedError, match=r"reaches 10\.0\.0\.2"):
        check_reach(near, "the engine of torch")


@pytest.mark.skip_backends("numpy", "array_api_strict", reason="it has no gradients")
def test_without_trust_nothing_listens(backend, monkeypatch):
    monkeypatch.setattr(group.state, "info", None)
    monkeypatch.delenv("XDEVICE_TRUST_NETWORK", raising=False)
    place = {
        "rank": 0,
        "world_size": 2,
        "address": "10.0.0.1:29400",
        "local_rank": 0,
        "token": "k" * 32,
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
