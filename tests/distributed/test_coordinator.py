"""What rank 0 answers those who come to it, whichever comes first; and what comes of asking somebody else."""

import json
import socket
import threading
import time
from contextlib import closing

import pytest

from xdevice.distributed.coordinator import ANSWER, Coordinator
from xdevice.distributed.member import Membership
from xdevice.distributed.seat import Seat
from xdevice.errors import DistributedError

JOB = {"world_size": 3, "timeout": 60.0, "backend": "numpy", "engine": "mpi", "version": "0"}


def of(rank, **others):
    return {**JOB, "rank": rank, "local_rank": rank, "pid": 100 + rank, "id": str(rank), "name": "here", **others}


@pytest.fixture
def coordinator():
    listener = socket.create_server(("127.0.0.1", 0))
    coordinator = Coordinator(listener, of(0), 60.0)
    coordinator.address = listener.getsockname()
    coordinator.start()
    return coordinator


def connected(coordinator):
    return socket.create_connection(coordinator.address, timeout=10)


def introduced(line, hello):
    line.sendall(json.dumps({"line": "gate", "host": "127.0.0.1", **hello}).encode() + b"\n")
    return line


def come(coordinator, hello):
    return introduced(connected(coordinator), hello)


def heard(line):
    with line.makefile() as lines:
        return json.loads(next(lines))


def test_rank_0_is_refused_like_the_others_though_they_have_come_and_gone_before_it(coordinator):
    with closing(come(coordinator, of(1))) as first, closing(come(coordinator, of(1, id="another"))) as second:
        said = heard(first)
        assert said["error"].startswith("rank 1 is there twice: process 101 on here and process 101 on here")
        assert heard(second) == said
    time.sleep(ANSWER / 3)
    with closing(come(coordinator, of(0))) as own:
        assert heard(own) == said
    coordinator.join(10)
    assert not coordinator.is_alive()


def test_who_is_on_the_line_already_is_refused_too_and_not_just_hung_up_on(coordinator):
    with closing(come(coordinator, of(0))) as own, closing(connected(coordinator)) as slow:
        with closing(come(coordinator, of(1, world_size=2))) as other:
            said = heard(other)
        assert heard(own) == said
        own.close()
        time.sleep(ANSWER / 3)
        introduced(slow, of(2))
        assert heard(slow) == said
    coordinator.join(10)
    assert not coordinator.is_alive()


def test_it_does_not_wait_for_ever_for_a_rank_0_that_cannot_reach_itself(coordinator):
    with closing(come(coordinator, of(1, world_size=2))) as line:
        assert heard(line)["error"] == "rank 1 has world size 2, and rank 0 has 3; start all alike"
    coordinator.join(10 * ANSWER)
    assert not coordinator.is_alive()
    with pytest.raises(ConnectionRefusedError):
        come(coordinator, of(0))


@pytest.mark.parametrize(
    ("answer", "rank", "says"),
    [
        (b"", 0, "rank 0 (at 127.0.0.1:{}) hung up before all had met: it was killed, or that is another program's"),
        (b"HTTP/1.1 400 Bad Request\r\n", None, "what answers at 127.0.0.1:{} is no rank 0 of an xdevice job"),
        (b"[1, 2]\n", None, "what answers at 127.0.0.1:{} is no rank 0 of an xdevice job"),
    ],
)
def test_another_programs_port_is_an_error_that_says_so(answer, rank, says):
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        port = other.getsockname()[1]

        def serve():
            connections = [other.accept()[0] for _ in range(2)]
            for connection in connections:
                connection.recv(65536)
                connection.sendall(answer)
                connection.close()

        server = threading.Thread(target=serve)
        server.start()
        with pytest.raises(DistributedError) as caught:
            Membership(Seat(1, 2, 1, "127.0.0.1", port, "a test"), 20.0, {})
        server.join(10)
    assert caught.value.rank == rank
    assert str(caught.value).startswith(says.format(port))
