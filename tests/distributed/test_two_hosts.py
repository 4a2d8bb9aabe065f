"""Two launchers on two hosts, which are two network namespaces of this machine."""

import re
import time

import pytest


@pytest.mark.needs("gradient")
def test_two_launchers_on_two_hosts_make_one_job(backend, launch_on):
    ended = [(process.communicate(timeout=120), process.returncode) for process in launch_on(backend, "agrees")]
    for rank, ((stdout, stderr), status) in enumerate(ended):
        assert status == 0, stderr
        assert f"[{rank}] agreed on 2" in stdout


@pytest.mark.needs("gradient")
def test_a_cut_cable_ends_the_job_on_both_hosts_each_of_which_names_the_other(backend, hosts, launch_on):
    started = launch_on(backend, "computes")
    for process in started:
        until_ready(process)
    time.sleep(0.5)
    launch_on.ip("-n", hosts[1][0], "link", "set", "xd0", "down")
    began = time.monotonic()
    for process, other in zip(started, (1, 0), strict=True):
        _, stderr = process.communicate(timeout=60)
        assert process.returncode == 75, stderr
        named = re.findall(r"(?:TimeoutError|xdevice): .*?rank (.) \(.*: it is stopped, or its host is", stderr)
        assert set(named) == {str(other)}, stderr
        assert "failed on rank" not in stderr  # the engine's own timeouts come later
    assert time.monotonic() - began < 40


def until_ready(process):
    for line in process.stdout:
        if "ready" in line:
            return
    raise AssertionError(process.communicate(timeout=60)[1])
