"""Unauthenticated connections at rank 0's port: they are dropped, and the job goes on."""

import json
import os
import re
import resource
import socket
import subprocess
import sys
import threading
import time
from contextlib import closing

import pytest

from xdevice.distributed.membership import Membership
from xdevice.distributed.process_info import ProcessInfo
from xdevice.distributed.rendezvous import authentication
from xdevice.distributed.rendezvous.authentication import CHALLENGE, new_challenge, response
from xdevice.distributed.rendezvous.coordinator import Coordinator
from xdevice.distributed.rendezvous.messages import Fingerprint
from xdevice.distributed.rendezvous.ports import free_block

TOKEN = "the token of a test's job"
AGREED = {"backend": "numpy", "engine": "mpi", "version": "0", "timeout": 30.0}


@pytest.fixture
def port(monkeypatch):
    """Rank 0's port while rank 1 of two is missing. After the test rank 1 joins, and the job succeeds."""
    monkeypatch.setenv("XDEVICE_TOKEN", TOKEN)
    first = free_block(6)
    failed = []

    def take_part(rank):
        try:
            membership = Membership(
                ProcessInfo(rank, 2, rank, "127.0.0.1", first, "a test"), 30.0, AGREED
            )
            for name in ("one", "two", "shutdown"):
                membership.enter(Fingerprint(name))
            membership.close()
        except Exception as error:
            failed.append(error)

    processes = [threading.Thread(target=take_part, args=(rank,)) for rank in range(2)]
    processes[0].start()
    socket.create_connection(("127.0.0.1", until_it_listens(first)), timeout=10).close()
    yield first
    processes[1].start()
    for process in processes:
        process.join(60)
    assert not failed
    assert not any(process.is_alive() for process in processes)


def until_it_listens(port):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return port
        time.sleep(0.01)
    raise AssertionError("rank 0 does not listen")


def answered(port, *pieces, patience=60):
    """The bytes that rank 0 sends after its challenge, to a connection that sends these."""
    with socket.create_connection(("127.0.0.1", port), timeout=patience) as line:
        theirs = line.recv(CHALLENGE)
        answer = b""
        try:
            for piece in pieces:
                line.sendall(piece(theirs) if callable(piece) else piece)
            while received := line.recv(1000):
                answer += received
        except ConnectionError:
            pass
        return answer


def joining(port, message):
    """The bytes that rank 0 sends to an authenticated connection that sends this."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as line:
        line.sendall(response_to(TOKEN)(line.recv(CHALLENGE)))
        assert len(line.recv(32)) == 32  # rank 0's own response
        line.sendall(message)
        return line.recv(1000)


def response_to(token, role=b"process"):
    ours = new_challenge()
    return lambda theirs: ours + response(token.encode(), role, ours, theirs)


UNAUTHENTICATED = {
    "bytes at random": os.urandom(5000),
    "HTTP": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "a line that does not end": b"x" * (3 << 19),
    "100 000 brackets": b"[" * 100_000 + b"\n",
    "a join message without an id": b'{"channel": "barrier", "rank": 1}\n',
    "a join message of another world size": b'{"channel": "barrier", "rank": 1, "world_size": 9, "id": "1"}\n',
    "another job's token": response_to("the token of another job"),
    "rank 0's role": response_to(TOKEN, b"rank 0"),
    "a response with a byte after it": lambda theirs: response_to(TOKEN)(theirs) + b"{",
    "half a challenge": b"XDV1" + b"x" * 10,
    "nothing": b"",
}


@pytest.mark.parametrize("sent", UNAUTHENTICATED)
def test_an_unauthenticated_connection_is_dropped(port, sent):
    assert answered(port, UNAUTHENTICATED[sent]) == b""  # else the connection's timeout raises


def test_a_proof_does_not_count_a_second_time(port):
    shown = []

    def spied(theirs):
        shown.append(response_to(TOKEN)(theirs))
        return shown[-1]

    assert len(answered(port, spied)) == 32  # rank 0's own response
    assert answered(port, shown[0]) == b""


def test_a_wrong_join_message_is_dropped(port):
    for message in (
        b"[" * 100_000,
        b"{}",
        b'{"channel": "barrier"}',
        b'{"channel": "barrier", "rank": "1"}',
        b'{"channel": [], "rank": 1}',
    ):
        assert joining(port, message + b"\n") == b""


def test_slow_bytes_keep_no_connection(port):
    def send(line):
        for byte in b"XDV1" + b"x" * 100:  # 20 s in all
            line.sendall(bytes([byte]))
            time.sleep(0.2)

    with (
        socket.create_connection(("127.0.0.1", port), timeout=10) as line,
        pytest.raises(ConnectionError),
    ):
        send(line)


def test_idle_connections_do_not_keep_the_job_out(port, monkeypatch):
    monkeypatch.setattr(authentication, "HANDSHAKE", 600)  # so that time drops none of them
    crowd = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(300)]
    assert joining(port, b'{"channel": "neither"}\n') == b""
    for line in crowd:
        line.close()


def test_rank_0_out_of_descriptors(port):
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 5, before[1]))
    code = f"""
import socket, time
lines = [socket.create_connection(("127.0.0.1", {port}), timeout=5) for _ in range(100)]
time.sleep(2)
"""
    try:
        spent = time.process_time()
        crowd = os.posix_spawn(sys.executable, [sys.executable, "-c", code], os.environ)
        os.waitpid(crowd, 0)
        assert (
            time.process_time() - spent < 1
        )  # of computing, in 2 s: it does not try again and again
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_once_all_have_met_the_port_is_closed():
    listener = socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()
    coordinator = Coordinator(
        listener, TOKEN.encode(), {**AGREED, "rank": 0, "world_size": 1, "id": "0", "pid": 1}, 30.0
    )
    coordinator.start()
    message = {
        **AGREED,
        "rank": 0,
        "world_size": 1,
        "id": "0",
        "host": "h",
        "local_rank": 0,
        "name": "h",
        "pid": 1,
    }
    with (
        closing(socket.create_connection(address, 10)) as barrier,
        closing(socket.create_connection(address, 10)) as control,
    ):
        for line, kind in ((barrier, "barrier"), (control, "control")):
            line.sendall(response_to(TOKEN)(line.recv(CHALLENGE)))
            line.recv(32)
            line.sendall(json.dumps({**message, "channel": kind}).encode() + b"\n")
        assert b"hosts" in barrier.recv(1000)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address, 10)


SILENT = """
import os, resource, sys, time
resource.setrlimit(resource.RLIMIT_NOFILE, (2000, 2000))
if os.environ["XDEVICE_RANK"] == "0":
    files = [open(os.devnull) for _ in range(1100)]
from xdevice.distributed.group import Group, enter, joining
from xdevice.distributed.rendezvous.messages import Fingerprint
from xdevice.distributed.membership import Membership
from xdevice.distributed.launcher_variables import process_info_in
info = process_info_in(os.environ)
with joining(info):
    membership = Membership(info, 600.0, dict(backend="numpy", engine="mpi", version="0", timeout=600.0))
enter(Group(membership=membership))
membership.enter(Fingerprint("work"))
if info.rank == 0:
    membership.begin_work("work that does not end")
    time.sleep(600)
membership.report_error(ValueError("a mistake of rank 1"))
time.sleep(600)
"""


@pytest.mark.weekly
def test_a_job_with_many_open_files(launch, tmp_path):
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 2000:
        pytest.skip("this system lets no process have 2000 open files")
    script = tmp_path / "silent.py"
    script.write_text(SILENT, encoding="utf-8")
    done = launch("numpy", script=script, limit=60)
    assert done.status == 75, done.stderr
    assert "raised ValueError: a mistake of rank 1" in done.stderr


def test_the_token_is_shown_nowhere(port, environment):
    """The token is in the environment, which other users cannot read."""
    command = [sys.executable, "-m", "xdevice", "launch", "-n", "2", "-m", "sysconfig"]
    launcher = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    shown = launcher.communicate(timeout=60)[0]
    assert not re.search(r"[0-9a-f]{64}", shown)
