"""Any bytes and any JSON, before and after the handshake: rank 0 goes on, or names the process."""

import json
import socket
import time
from contextlib import ExitStack, closing, contextmanager, suppress

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from xdevice.distributed.rendezvous.authentication import (
    CHALLENGE,
    MAGIC,
    RESPONSE,
    new_challenge,
    response,
)
from xdevice.distributed.rendezvous.coordinator import Coordinator
from xdevice.distributed.rendezvous.messages import Channel

TOKEN = b"the token of a test's job"
OWN = {"backend": "numpy", "engine": "mpi", "version": "0", "timeout": 30.0, "world_size": 2}
JOIN = {**OWN, "id": "1", "host": "h", "local_rank": 0, "name": "h", "pid": 1}
FEW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])

scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=8)
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner)
)
join_messages = st.builds(
    lambda kept, changed: {**kept, **changed},
    st.sampled_from([{}, {**JOIN, "channel": "barrier", "rank": 1}]),
    st.dictionaries(st.sampled_from([*JOIN, "channel", "rank"]), values, max_size=4),
)
entries = st.fixed_dictionaries(
    {},
    optional={
        "name": values | st.just("one"),
        "count": values,
        "tensors": values,
        "digest": values,
    },
)
news = st.one_of(
    st.builds(lambda enter: {"enter": enter}, values | entries),
    st.dictionaries(
        st.sampled_from(["where", "stuck", "raised", "left", "entered", "error"]),
        values,
        max_size=3,
    ),
    values,
)


@contextmanager
def coordinator():
    """The coordinator of a job in which only rank 0 has joined, its address, and rank 0's barrier channel."""
    listener = socket.create_server(("127.0.0.1", 0))
    made = Coordinator(listener, TOKEN, {**JOIN, "rank": 0, "id": "0"}, 30.0)
    address = listener.getsockname()
    made.start()
    own = [
        connected(address, {**JOIN, "rank": 0, "id": "0", "channel": kind})
        for kind in ("barrier", "control")
    ]
    try:
        until(lambda: 0 in made.peers and len(made.peers[0].channels) == 2)
        yield made, address, own[0]
        if made.failure is not None:
            assert "cannot go on" not in made.failure["error"], made.failure
        else:
            assert made.is_alive()
    finally:
        for line in own:
            line.close()
        made.join(60)
        assert not made.is_alive()


def connected(address, *lines):
    """An authenticated connection that has sent these lines."""
    line = socket.create_connection(address, timeout=60)
    ours, theirs = new_challenge(), line.recv(CHALLENGE)
    line.sendall(ours + response(TOKEN, b"process", ours, theirs))
    assert len(line.recv(RESPONSE)) == RESPONSE
    for words in lines:
        line.sendall(words if isinstance(words, bytes) else json.dumps(words).encode() + b"\n")
    return line


def until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_any_bytes_before_the_handshake():
    with coordinator() as (made, address, _):

        @FEW
        @given(st.binary(max_size=100) | st.binary(max_size=100).map(lambda rest: MAGIC + rest))
        @example(MAGIC + bytes(64))
        @example(b"{" * 100_000)
        def sent(text):
            with closing(socket.create_connection(address, timeout=60)) as line:
                told = b""
                with suppress(OSError):  # it hangs up while there is more to read
                    line.sendall(text)
                    line.shutdown(socket.SHUT_WR)
                    while part := line.recv(1000):
                        told += part
                assert len(told) <= CHALLENGE

        sent()
        assert made.failure is None
        connected(address).close()


def test_a_response_counts_once():
    """A response for one connection, sent on another one, with the same and with swapped random numbers."""
    with coordinator() as (made, address, _):
        first, second = (socket.create_connection(address, timeout=60) for _ in range(2))
        with first, second:
            ours, one, other = new_challenge(), first.recv(CHALLENGE), second.recv(CHALLENGE)
            for line, shown in (
                (second, response(TOKEN, b"process", ours, one)),
                (first, response(TOKEN, b"process", one, ours)),
            ):
                line.sendall(ours + shown)
                assert line.recv(100) == b""
            assert one != other
            assert made.failure is None


@FEW
@given(st.lists(join_messages | values, min_size=1, max_size=3))
def test_any_join_message(messages):
    with coordinator() as (made, address, _), closing(connected(address)) as line:
        with suppress(OSError):  # it hangs up at the first that is wrong
            line.sendall(b"".join(json.dumps(message).encode() + b"\n" for message in messages))
            line.shutdown(socket.SHUT_WR)
            while line.recv(1000):
                pass
        until(lambda: not made._unidentified and len(made._peers_by_channel) == 2)


@FEW
@given(st.sampled_from(["barrier", "control"]), st.lists(news, min_size=1, max_size=3))
@example("barrier", [{"enter": {"name": "one"}}])
@example("control", [{"where": [[]]}])
def test_any_message_of_a_peer(where, messages):
    with coordinator() as (made, address, own), ExitStack() as stack:
        lines = {}
        for kind in ("barrier", "control"):
            lines[kind] = stack.enter_context(
                closing(connected(address, {**JOIN, "rank": 1, "channel": kind}))
            )
        assert b"hosts" in lines["barrier"].recv(1000)
        own.sendall(b'{"enter": {"name": "one", "count": 0, "tensors": [], "digest": ""}}\n')
        for message in messages:
            lines[where].sendall(json.dumps(message).encode() + b"\n")
        lines["control"].sendall(b'{"raised": "the end"}\n')
        until(lambda: made.failure is not None)
        assert made.failure["rank"] == 1


def test_messages_may_arrive_in_pieces():
    @FEW
    @given(
        st.lists(st.dictionaries(st.text(max_size=3), scalars, max_size=3), max_size=5), st.data()
    )
    def pieces(messages, data):
        text = b"".join(json.dumps(message).encode() + b"\n" for message in messages)
        cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
        with closing(socket.create_server(("127.0.0.1", 0))) as listener:
            sender = socket.create_connection(listener.getsockname())
            receiver = Channel(listener.accept()[0])
        found = []
        for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
            if begin < end:
                sender.sendall(text[begin:end])
                found += receiver.read()
        sender.close()
        assert receiver.read() is None  # the other end has closed
        receiver.close()
        assert repr(found) == repr([json.loads(json.dumps(message)) for message in messages])

    pieces()
