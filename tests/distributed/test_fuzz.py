"""Whatever bytes and JSON come, before the proof and after it: rank 0 goes on, or blames the process that sent them."""

import json
import socket
import time
from contextlib import ExitStack, closing, contextmanager, suppress

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from xdevice.distributed.coordinator import Coordinator
from xdevice.distributed.lines import Line
from xdevice.distributed.proof import GREETING, MAGIC, PROOF, greeting, proof

TOKEN = b"the token of a test's job"
OWN = {"backend": "numpy", "engine": "mpi", "version": "0", "timeout": 30.0, "world_size": 2}
HELLO = {**OWN, "id": "1", "host": "h", "local_rank": 0, "name": "h", "pid": 1}
FEW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=8)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner))
hellos = st.builds(
    lambda kept, changed: {**kept, **changed},
    st.sampled_from([{}, {**HELLO, "line": "gate", "rank": 1}]),
    st.dictionaries(st.sampled_from([*HELLO, "line", "rank"]), values, max_size=4),
)
entries = st.fixed_dictionaries(
    {},
    optional={"name": values | st.just("one"), "count": values, "tensors": values, "digest": values},
)
news = st.one_of(
    st.builds(lambda enter: {"enter": enter}, values | entries),
    st.dictionaries(st.sampled_from(["where", "stuck", "raised", "left", "entered", "error"]), values, max_size=3),
    values,
)


@contextmanager
def coordinator():
    """Rank 0's side of a job of two, of which rank 0 alone has come; its address, and rank 0's gate."""
    listener = socket.create_server(("127.0.0.1", 0))
    made = Coordinator(listener, TOKEN, {**HELLO, "rank": 0, "id": "0"}, 30.0)
    address = listener.getsockname()
    made.start()
    own = [connected(address, {**HELLO, "rank": 0, "id": "0", "line": kind}) for kind in ("gate", "alarm")]
    try:
        until(lambda: 0 in made.members and len(made.members[0].lines) == 2)
        yield made, address, own[0]
        if made.failure is not None:
            assert "cannot go on" not in made.failure["error"], made.failure
        else:
            assert made.is_alive()
    finally:
        for line in own:
            line.close()
        made.join(5)
        assert not made.is_alive()


def connected(address, *lines):
    """A connection that has proved itself, and has sent these lines."""
    line = socket.create_connection(address, timeout=10)
    ours, theirs = greeting(), line.recv(GREETING)
    line.sendall(ours + proof(TOKEN, b"process", ours, theirs))
    assert len(line.recv(PROOF)) == PROOF
    for words in lines:
        line.sendall(words if isinstance(words, bytes) else json.dumps(words).encode() + b"\n")
    return line


def until(condition):
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_before_the_proof_any_bytes_are_dropped_and_told_nothing():
    with coordinator() as (made, address, _):

        @FEW
        @given(st.binary(max_size=100) | st.binary(max_size=100).map(lambda rest: MAGIC + rest))
        @example(MAGIC + bytes(64))
        @example(b"{" * 100_000)
        def sent(text):
            with closing(socket.create_connection(address, timeout=10)) as line:
                told = b""
                with suppress(OSError):  # it hangs up while there is more to read
                    line.sendall(text)
                    line.shutdown(socket.SHUT_WR)
                    while part := line.recv(1000):
                        told += part
                assert len(told) <= GREETING

        sent()
        assert made.failure is None
        connected(address).close()


def test_a_claim_that_was_taken_over_on_the_way_proves_nothing_elsewhere():
    """A proof for one connection, sent on another one, with the same and with swapped random numbers."""
    with coordinator() as (made, address, _):
        first, second = (socket.create_connection(address, timeout=10) for _ in range(2))
        with first, second:
            ours, one, other = greeting(), first.recv(GREETING), second.recv(GREETING)
            for line, shown in (
                (second, proof(TOKEN, b"process", ours, one)),
                (first, proof(TOKEN, b"process", one, ours)),
            ):
                line.sendall(ours + shown)
                assert line.recv(100) == b""
            assert one != other and made.failure is None


@FEW
@given(st.lists(hellos | values, min_size=1, max_size=3))
def test_after_the_proof_a_hello_is_one_or_is_dropped_or_is_blamed(messages):
    with coordinator() as (made, address, _), closing(connected(address)) as line:
        with suppress(OSError):  # it hangs up at the first that is wrong
            line.sendall(b"".join(json.dumps(message).encode() + b"\n" for message in messages))
            line.shutdown(socket.SHUT_WR)
            while line.recv(1000):
                pass
        until(lambda: not made._unknown and len(made._owners) == 2)


@FEW
@given(st.sampled_from(["gate", "alarm"]), st.lists(news, min_size=1, max_size=3))
@example("gate", [{"enter": {"name": "one"}}])
@example("alarm", [{"where": [[]]}])
def test_what_a_member_sends_ends_the_job_in_its_own_name_or_not_at_all(where, messages):
    with coordinator() as (made, address, own), ExitStack() as stack:
        lines = {}
        for kind in ("gate", "alarm"):
            lines[kind] = stack.enter_context(closing(connected(address, {**HELLO, "rank": 1, "line": kind})))
        assert b"hosts" in lines["gate"].recv(1000)
        own.sendall(b'{"enter": {"name": "one", "count": 0, "tensors": [], "digest": ""}}\n')
        for message in messages:
            lines[where].sendall(json.dumps(message).encode() + b"\n")
        lines["alarm"].sendall(b'{"raised": "the end"}\n')
        until(lambda: made.failure is not None)
        assert made.failure["rank"] == 1


def test_bytes_of_a_line_in_any_pieces_are_the_same_messages():
    @FEW
    @given(st.lists(st.dictionaries(st.text(max_size=3), scalars, max_size=3), max_size=5), st.data())
    def pieces(messages, data):
        text = b"".join(json.dumps(message).encode() + b"\n" for message in messages)
        cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
        with closing(socket.create_server(("127.0.0.1", 0))) as listener:
            sender = socket.create_connection(listener.getsockname())
            receiver = Line(listener.accept()[0])
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
