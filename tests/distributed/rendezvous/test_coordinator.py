"""Rank 0's answers to processes that connect in any order, and connecting to another program."""

import json
import socket
import threading
import time
from contextlib import closing

import pytest

from xdevice.distributed.deadlines import ANSWER
from xdevice.distributed.membership import Membership
from xdevice.distributed.process_info import ProcessInfo
from xdevice.distributed.rendezvous.authentication import CHALLENGE, MAGIC, authenticate
from xdevice.distributed.rendezvous.coordinator import Coordinator
from xdevice.distributed.rendezvous.ports import free_block
from xdevice.errors import DistributedError, DistributedTimeoutError

TOKEN = b"the token of a test's job"
JOB = {"world_size": 3, "timeout": 60.0, "backend": "numpy", "engine": "mpi", "version": "0"}


def of(rank, **others):
    return {
        **JOB,
        "rank": rank,
        "local_rank": rank,
        "pid": 100 + rank,
        "id": str(rank),
        "name": "here",
        **others,
    }


@pytest.fixture
def coordinator():
    listener = socket.create_server(("127.0.0.1", 0))
    coordinator = Coordinator(listener, TOKEN, of(0), 60.0)
    coordinator.address = listener.getsockname()
    coordinator.start()
    return coordinator


def connected(coordinator):
    line = socket.create_connection(coordinator.address, timeout=60)
    authenticate(line, TOKEN, time.monotonic() + 60)
    return line


def joined(line, message):
    line.sendall(
        json.dumps({"channel": "barrier", "host": "127.0.0.1", **message}).encode() + b"\n"
    )
    return line


def come(coordinator, message):
    return joined(connected(coordinator), message)


def heard(line):
    with line.makefile() as lines:
        return json.loads(next(lines))


def test_rank_0_is_refused_after_the_others(coordinator):
    with (
        closing(come(coordinator, of(1))) as first,
        closing(come(coordinator, of(1, id="another"))) as second,
    ):
        said = heard(first)
        assert said["error"].startswith(
            "rank 1 is there twice: process 101 on here and process 101 on here"
        )
        assert heard(second) == said
    time.sleep(ANSWER / 3)
    with closing(come(coordinator, of(0))) as own:
        assert heard(own) == said
    coordinator.join(60)
    assert not coordinator.is_alive()


def test_a_connected_process_is_refused(coordinator):
    with closing(come(coordinator, of(0))) as own, closing(connected(coordinator)) as slow:
        with closing(come(coordinator, of(1, world_size=2))) as other:
            said = heard(other)
        assert heard(own) == said
        own.close()
        time.sleep(ANSWER / 3)
        joined(slow, of(2))
        assert heard(slow) == said
    coordinator.join(60)
    assert not coordinator.is_alive()


def test_a_rank_0_that_never_joins(coordinator):
    with closing(come(coordinator, of(1, world_size=2))) as line:
        assert heard(line)["error"] == "rank 1 has world size 2, and rank 0 has 3; start all alike"
    coordinator.join(60)
    assert not coordinator.is_alive()
    with pytest.raises(ConnectionRefusedError):
        come(coordinator, of(0))


@pytest.fixture
def asked():
    """Join at a server that answers in this way; returns the error and the address."""

    def ask(answer):
        with closing(socket.create_server(("127.0.0.1", 0))) as other:
            port = other.getsockname()[1]

            def serve():
                while True:
                    try:
                        connection = other.accept()[0]
                    except OSError:
                        return
                    with closing(connection):
                        answer(connection)

            threading.Thread(target=serve, daemon=True).start()
            with pytest.raises(DistributedError) as caught:
                Membership(ProcessInfo(1, 2, 1, "127.0.0.1", port, "a test"), 2.0, {})
            other.shutdown(socket.SHUT_RDWR)
        return caught.value, f"127.0.0.1:{port}"

    return ask


def test_a_rank_0_out_of_reach_names_the_ports(monkeypatch):
    monkeypatch.setenv("XDEVICE_TOKEN", TOKEN.decode())
    port = free_block(7)
    with pytest.raises(DistributedTimeoutError) as caught:
        Membership(ProcessInfo(1, 2, 0, "0.0.0.0", port, "a test"), 1.0, {})
    assert "rank 0 cannot be reached" in str(caught.value)
    assert str(caught.value).endswith(
        f"let firewalls pass ports {port} to {port + 6} between the hosts"
    )


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 400 Bad Request\r\n", b"[1, 2]\n", b"XDV", b"\0" * 4 * CHALLENGE]
)
def test_another_programs_port_is_an_error(asked, monkeypatch, answer):
    monkeypatch.setenv("XDEVICE_TOKEN", TOKEN.decode())
    error, there = asked(lambda connection: connection.recv(65536) and connection.sendall(answer))
    assert error.rank is None
    assert str(error).startswith(
        f"what answers at {there} is not rank 0 of an xdevice job; choose another port"
    )


def test_a_silent_port_is_tried_again(asked, monkeypatch):
    monkeypatch.setenv("XDEVICE_TOKEN", TOKEN.decode())
    error, there = asked(lambda connection: None)
    assert error.rank == 0
    assert isinstance(error, DistributedTimeoutError)
    assert str(error).startswith(f"rank 1 has waited 2 s at {there}: rank 0 cannot be reached (")


def test_a_false_rank_0_is_not_told_the_token(asked, monkeypatch):
    monkeypatch.setenv("XDEVICE_TOKEN", TOKEN.decode())
    heard = []

    def false(connection):
        connection.sendall(MAGIC + b"n" * 32)
        time.sleep(0.2)
        heard.append(connection.recv(65536))
        connection.sendall(b"p" * 32)

    error, there = asked(false)
    assert str(error).startswith(f"what answers at {there} does not know this job's token")
    assert len(heard[0]) == CHALLENGE + 32
    assert TOKEN not in heard[0]
    assert b"rank" not in heard[0]
