"""Launchers on several hosts, which are network namespaces of this machine."""

import re
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest


@pytest.mark.weekly
@pytest.mark.skip_backends("numpy", "array_api_strict", reason="it has no gradients")
def test_two_hosts_make_one_job(backend, launch_on):
    ended = [
        (process.communicate(timeout=120), process.returncode)
        for process in launch_on(backend, "agrees")
    ]
    for rank, ((stdout, stderr), status) in enumerate(ended):
        assert status == 0, stderr
        assert f"[{rank}] agreed on 2" in stdout


@pytest.mark.weekly
@pytest.mark.skip_backends("numpy", "array_api_strict", reason="it has no gradients")
@pytest.mark.parametrize("kind", ["secondary", "elsewhere"])
def test_hosts_meet_at_addresses_that_are_not_the_first_of_their_interface(
    backend, hosts, launch_on, kind
):
    """Elsewhere: the first address is the same on both hosts, so neither reaches the other there."""
    for name, address in hosts:
        launch_on.ip("-n", name, "addr", "flush", "dev", "xd0")
        launch_on.ip(
            "-n",
            name,
            "addr",
            "add",
            f"{address}0/24" if kind == "secondary" else "192.168.9.1/24",
            "dev",
            "xd0",
        )
        label = (
            ["label", "xd0:1"] if kind == "elsewhere" and backend == "paddle" else []
        )  # or it uses the first
        launch_on.ip("-n", name, "addr", "add", f"{address}/24", "dev", "xd0", *label)
    ended = [
        (process.communicate(timeout=120), process.returncode)
        for process in launch_on(backend, "agrees")
    ]
    assert [status for _, status in ended] == [0, 0], ended


@pytest.mark.weekly
@pytest.mark.skip_backends("numpy", "array_api_strict", reason="it has no gradients")
def test_paddle_is_refused_an_address_that_gloo_would_not_use(backend, hosts, launch_on):
    if backend != "paddle":
        pytest.skip("PaddlePaddle's engine alone lets gloo choose among an interface's addresses")
    for name, address in hosts:
        launch_on.ip("-n", name, "addr", "flush", "dev", "xd0")
        for each in ("192.168.9.1", address):
            launch_on.ip("-n", name, "addr", "add", f"{each}/24", "dev", "xd0")
    for process in launch_on(backend, "agrees"):
        stderr = process.communicate(timeout=120)[1]
        assert process.returncode not in (0, None)
        assert "is not the first of xd0, and gloo uses the first, 192.168.9.1" in stderr


@pytest.mark.weekly
@pytest.mark.skip_backends("numpy", "array_api_strict", reason="it has no gradients")
def test_hosts_meet_if_their_names_stand_for_loopback(backend, hosts, launch_on):
    folders = []
    try:
        for number, (name, _) in enumerate(hosts):
            folders.append(Path("/etc/netns", name))
            folders[-1].mkdir(parents=True)
            others = [f"{address} node{i}\n" for i, (_, address) in enumerate(hosts) if i != number]
            own = f"127.0.0.1 localhost\n127.0.1.1 node{number} {socket.gethostname()}\n"  # as Debian writes
            (folders[-1] / "hosts").write_text(own + "".join(others))
        started = launch_on(backend, "agrees", names=["node0", "node1"])
        ended = [(process.communicate(timeout=120), process.returncode) for process in started]
    finally:
        for folder in folders:
            shutil.rmtree(folder)
    assert [status for _, status in ended] == [0, 0], ended


@pytest.mark.weekly
@pytest.mark.skip_backends("numpy", "array_api_strict", reason="it has no gradients")
def test_a_cut_cable_ends_both_hosts(backend, hosts, launch_on):
    started = launch_on(backend, "computes")
    for process in started:
        until_ready(process)
    time.sleep(0.5)
    launch_on.ip("-n", hosts[1][0], "link", "set", "xd0", "down")
    for process, other in zip(started, (1, 0), strict=True):
        _, stderr = process.communicate(timeout=60)
        assert process.returncode == 75, stderr
        named = re.findall(
            r"(?:TimeoutError|xdevice): .*?rank (.) \(.*: it is stopped, or its host is", stderr
        )
        assert set(named) == {str(other)}, stderr
        assert "failed on rank" not in stderr  # the engine's own timeouts come later


@pytest.mark.weekly
@pytest.mark.parametrize("hosts", [3], indirect=True)
def test_no_rank_is_named_if_two_hosts_cannot_connect(backend, hosts, launch_on):
    of_torch(backend)
    started = launch_on("torch", "computes")
    for process in started:
        until_ready(process)
    for port in "bc":  # isolated ports of a switch reach the others only
        launch_on.ip(
            "-n",
            hosts[0][0][:-1] + "switch",
            "link",
            "set",
            f"p{port}",
            "type",
            "bridge_slave",
            "isolated",
            "on",
        )
    for rank, process in enumerate(started):
        stderr = process.communicate(timeout=90)[1]
        assert process.returncode == 75, stderr
        assert (
            "all processes answer: check the network between them, or give a longer timeout; ports "
            in stderr
        )
        assert "must be reachable between 10.213.7.1, 10.213.7.2, 10.213.7.3" in stderr
        assert not re.search(r"rank \d \(process", stderr), f"rank {rank} names one: {stderr}"


@pytest.mark.weekly
def test_a_transfer_longer_than_the_timeout_arrives(backend, hosts, launch_on):
    of_torch(backend)
    if shutil.which("tc") is None:
        pytest.skip("a slow network is made with iproute2's tc, which is not here")
    started = launch_on("torch", "transfers", 10_000_000)  # 40 MB, with a timeout of 4 s
    for process in started:
        until_ready(process)
    for name, _ in hosts:
        slow = [
            "tc",
            "qdisc",
            "add",
            "dev",
            "xd0",
            "root",
            "tbf",
            "rate",
            "40mbit",
            "burst",
            "256kb",
            "latency",
            "1s",
        ]
        subprocess.run(["ip", "netns", "exec", name, *slow], check=True)
    for process in started:
        stdout, stderr = process.communicate(timeout=90)
        assert process.returncode == 0, stderr
        assert "arrived: 2.0" in stdout, stderr


def of_torch(backend):
    if backend != "torch":
        pytest.skip("the network of PyTorch's engine is cut, in PyTorch's environment")


def until_ready(process):
    for line in process.stdout:
        if "ready" in line:
            return
    raise AssertionError(process.communicate(timeout=60)[1])
