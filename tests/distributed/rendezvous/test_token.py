"""The job's token if another launcher has started the processes."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import xdevice
from xdevice.distributed.process_info import ProcessInfo
from xdevice.distributed.rendezvous.authentication import create_token, find_token
from xdevice.distributed.rendezvous.ports import free_block

MEETS = """
import os
from xdevice.distributed.rendezvous.messages import Fingerprint
from xdevice.distributed.membership import Membership
from xdevice.distributed.launcher_variables import process_info_in
timeout = float(os.environ.get("SECONDS", 20))
agreed = dict(backend="numpy", engine="mpi", version="0", timeout=timeout)
membership = Membership(process_info_in(os.environ), timeout, agreed)
membership.enter(Fingerprint("shutdown"))
membership.close()
"""


def met(*of_ranks):
    """What processes with these variables of ``torchrun`` print on stderr, started in this order."""
    first = str(free_block(8))
    env = {name: value for name, value in os.environ.items() if not name.startswith("XDEVICE")}
    given = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "XDEVICE_MASTER_PORT": first}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", MEETS],
            env={**env, **given, "LOCAL_RANK": own["RANK"], **own},
            **pipes,
        )
        for own in of_ranks
    ]
    return [process.communicate(timeout=60)[0] for process in started], first


def test_a_token_in_the_users_file(monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (folder,) = [tmp_path / f"xdevice-{os.getuid()}"]
    folder.mkdir(mode=0o700)
    said, _ = met({"RANK": "1"}, {"RANK": "0"})
    assert said == ["", ""]
    assert list(folder.iterdir()) == []


@pytest.mark.weekly
def test_another_token_is_refused():
    ours, others = (
        {"XDEVICE_TOKEN": "a" * 40, "SECONDS": "8"},
        {"XDEVICE_TOKEN": "b" * 40, "SECONDS": "8"},
    )
    said, port = met({"RANK": "0", **ours}, {"RANK": "1", **others})
    assert (
        f"rank 0 (at 127.0.0.1:{port}) does not accept this process's token; give all processes"
        in said[1]
    )
    assert "rank 1 did not come" in said[0]


def test_hosts_need_a_token():
    for ask in (create_token, find_token):
        with pytest.raises(
            xdevice.DistributedError,
            match="srun gives the processes of several hosts no secret; set XDEVICE_TOKEN",
        ):
            ask(ProcessInfo(0, 2, 0, "10.0.0.1", 20_000, "srun"), {})
    assert (
        create_token(ProcessInfo(0, 2, 0, "10.0.0.1", 20_000, "srun"), {"XDEVICE_TOKEN": "x" * 16})
        == b"x" * 16
    )


def test_a_short_token_is_refused():
    with pytest.raises(
        xdevice.ArgumentError, match="XDEVICE_TOKEN has 6 characters; give at least 16"
    ):
        create_token(ProcessInfo(0, 2, 0, "10.0.0.1", 20_000, "srun"), {"XDEVICE_TOKEN": "secret"})


@pytest.mark.skipif(os.name != "posix", reason="folders have no modes here")
def test_a_folder_that_others_can_read_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    Path(tmp_path, f"xdevice-{os.getuid()}").mkdir()
    Path(tmp_path, f"xdevice-{os.getuid()}").chmod(0o777)
    with pytest.raises(
        xdevice.DistributedError, match="is open to other users; remove it, or set XDEVICE_TOKEN"
    ):
        create_token(ProcessInfo(0, 2, 0, "127.0.0.1", 20_000, "torchrun"), {})
