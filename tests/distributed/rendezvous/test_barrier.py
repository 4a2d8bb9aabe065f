"""The barrier before a collective: no process enters early, nothing hangs, wrong ranks are named."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from xdevice.contract import Job
from xdevice.distributed.barrier_setup import position_of
from xdevice.distributed.tree_barrier import RECORD, Pipes

CROWD = Path(__file__).with_name("crowd.py")
TOKEN = {"XDEVICE_TOKEN": "the token of a test's job"}
COLLECTIVES = 7  # of a scenario without a fault, the shutdown too


def crowd(processes, per_host, scenario="", victim=-1, **env):
    kept = {key: value for key, value in os.environ.items() if not key.startswith("XDEVICE_")}
    command = [sys.executable, CROWD, processes, per_host, scenario, victim]
    done = subprocess.run(
        list(map(str, command)),
        env={**kept, **env},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(("processes", "per_host"), [(4, 4), (6, 2), (20, 1), (12, 5)])
def test_all_enter_together_by_the_tree(processes, per_host):
    found = crowd(processes, per_host, **TOKEN)
    assert {rank: told["node"] for rank, told in found.items()} == {
        str(rank): "Follower" if rank % per_host else "Leader" for rank in range(processes)
    }
    assert {(told["last"], told["together"]) for told in found.values()} == {
        ("shutdown", COLLECTIVES)
    }


def test_no_process_enters_before_all_have_asked():
    found = crowd(12, 4, "dawdles", **TOKEN)
    rounds = list(zip(*[told["times"] for told in found.values()], strict=True))
    assert len(rounds) == 200
    assert not [
        number
        for number, times in enumerate(rounds)
        if min(i for _, i in times) < max(a for a, _ in times)
    ]


def test_without_a_tree_rank_0_lets_all_in():
    found = crowd(4, 2)  # without a token no process listens for those of other hosts
    assert {(told["node"], told["last"]) for told in found.values()} == {("NoneType", "shutdown")}


@pytest.mark.parametrize(
    ("scenario", "victim", "says"),  # ranks 2 and 4 are leaders of their hosts
    [
        ("killed", 2, r"has gone: it was killed, or ended without shutdown\(\)"),
        ("killed", 3, r"has gone: it was killed, or ended without shutdown\(\)"),
        ("frozen", 2, r"does not answer: it is stopped, or its host is"),
        ("elsewhere", 3, r"did not come: it is at .*crowd\.py:\d+"),
        ("raises", 4, "raised ValueError: of the victim"),
        (
            "shapes",
            5,
            r"gives all_reduce\('sum'\) float32\[4\] on cpu where rank 0 gives float32\[3\] on cpu; ",
        ),
        ("calls", 2, r"calls barrier where rank 0 calls all_reduce\('sum'\); "),
        ("leaves", 3, r"calls shutdown where rank 0 calls all_reduce\('sum'\); "),
    ],
)
def test_a_failed_rank_is_named_by_all(scenario, victim, says):
    found = crowd(6, 2, scenario, victim, **TOKEN)
    others = [told for rank, told in found.items() if int(rank) != victim]
    assert len(others) == 5
    assert {told["rank"] for told in others} == {victim}
    said = {told["error"] for told in others}
    assert len(said) == 1
    assert re.search(rf"rank {victim} \(process \d+ on [^)]*\) {says}", *said)
    if scenario in ("killed", "frozen", "elsewhere"):
        assert re.search(r", after all_reduce\('sum'\), its number 2$", *said)
    if scenario in ("frozen", "elsewhere"):
        before = ", ".join(str(rank) for rank in range(6) if rank != victim)
        assert said.pop().startswith(f"ranks {before} waited 1 s in all_reduce('sum'); ")


def test_a_late_rank_is_waited_for():
    found = crowd(6, 2, "late", 2, **TOKEN)
    assert {(told["last"], told["together"]) for told in found.values()} == {
        ("shutdown", COLLECTIVES)
    }


def test_a_rank_0_that_is_frozen_is_named():
    found = crowd(4, 2, "frozen", 0, **TOKEN)
    assert len(found) == 3
    assert {(told["kind"], told["rank"]) for told in found.values()} == {
        ("DistributedTimeoutError", 0)
    }


def test_the_tree_has_every_leader_once():
    hosts = tuple(f"10.0.0.{number // 3}" for number in range(250))
    job = Job(0, 250, 0, hosts, (0,) * 250, 0)
    places = [position_of(rank, job) for rank in range(250)]
    below = [child for place in dict.fromkeys(places) for child in place.children]
    assert sorted(below) == list(range(3, 250, 3))
    assert all(rank in places[places[rank].parent].children for rank in below)
    assert places[0].parent is None
    assert places[249].processes_on_host == 1
    assert places[248].processes_on_host == 3


def test_pipes_of_another_process():
    own = Pipes.create(2)
    opened = Pipes.open(own.offer())
    os.write(opened.requests, RECORD.pack(1, b"d" * 16))
    assert os.read(own.requests, 100) == RECORD.pack(1, b"d" * 16)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="another process"):
        Pipes.open({**own.offer(), "inodes": [1, 2, 3]})
    assert len(os.listdir("/proc/self/fd")) == before
    opened.close()
    own.close()
    own.close()
