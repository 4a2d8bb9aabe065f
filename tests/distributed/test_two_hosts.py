"""Two launchers on two hosts, which are two network namespaces of this machine."""

import pytest


@pytest.mark.needs("gradient")
def test_two_launchers_on_two_hosts_make_one_job(backend, launch_on):
    ended = [(process.communicate(timeout=120), process.returncode) for process in launch_on(backend, "agrees")]
    for rank, ((stdout, stderr), status) in enumerate(ended):
        assert status == 0, stderr
        assert f"[{rank}] agreed on 2" in stdout
