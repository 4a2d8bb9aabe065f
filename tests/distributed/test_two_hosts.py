"""Two launchers on two hosts: two network namespaces of this machine, joined by a virtual cable.

That takes root and iproute2; where they are missing, the tests say so and skip.
"""

import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("worker.py")


def ip(*arguments, check=True):
    return subprocess.run(["ip", *map(str, arguments)], check=check, capture_output=True, text=True)


def why_not():
    if shutil.which("ip") is None:
        return "two hosts are made with iproute2's ip, which is not here"
    if os.geteuid() != 0:
        return "two hosts are network namespaces, which root alone can make"
    name = f"xd{os.getpid()}"
    made = ip("netns", "add", name, check=False)
    ip("netns", "del", name, check=False)
    return f"this machine makes no network namespace: {made.stderr.strip()}" if made.returncode else None


@pytest.fixture
def hosts():
    """The names and addresses of two hosts that reach each other and nobody else."""
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    names = [f"xd{os.getpid()}{letter}" for letter in "ab"]
    addresses = ["10.213.7.1", "10.213.7.2"]
    try:
        for name in names:
            ip("netns", "add", name)
        ip("link", "add", "xd0", "netns", names[0], "type", "veth", "peer", "name", "xd0", "netns", names[1])
        for name, address in zip(names, addresses, strict=True):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", "xd0")
            for link in ("lo", "xd0"):
                ip("-n", name, "link", "set", link, "up")
        yield list(zip(names, addresses, strict=True))
    finally:
        for name in names:
            ip("netns", "del", name, check=False)


@pytest.fixture
def launch_on(hosts, environment):
    """Starts a launcher on each host; a frozen worker's too are killed in the end."""
    started = []

    def start(backend, scenario):
        port = random.randrange(20_000, 30_000)
        for number, (name, _) in enumerate(hosts):
            command = [sys.executable, "-m", "xdevice", "launch", "-n", "1", "--nnodes", "2", "--node-rank", number]
            command += ["--master-addr", hosts[0][1], "--master-port", port, "--hosts", ",".join(a for _, a in hosts)]
            command += ["--backend", backend, "--time-limit", 100, WORKER, scenario]
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
            in_host = ["ip", "netns", "exec", name, *map(str, command)]
            started.append(subprocess.Popen(in_host, env=environment, **pipes))
        return started

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.needs("gradient")
def test_two_launchers_on_two_hosts_make_one_job(backend, launch_on):
    ended = [(process.communicate(timeout=120), process.returncode) for process in launch_on(backend, "agrees")]
    for rank, ((stdout, stderr), status) in enumerate(ended):
        assert status == 0, stderr
        assert f"[{rank}] agreed on 2" in stdout


def test_a_host_that_can_no_longer_be_reached_ends_the_job_on_the_other(backend, hosts, launch_on):
    if backend == "numpy":
        pytest.skip("numpy has no engine: `test_a_framework_without_an_engine_says_so_before_anybody_waits`")
    first, second = launch_on(backend, "waits")
    assert "ready" in first.stdout.readline() + second.stdout.readline()
    time.sleep(0.2)
    ip("-n", hosts[1][0], "link", "set", "xd0", "down")
    for process, other in ((first, "rank 1"), (second, "rank 0")):
        _, stderr = process.communicate(timeout=60)
        assert process.returncode == 75, stderr
        assert other in stderr
