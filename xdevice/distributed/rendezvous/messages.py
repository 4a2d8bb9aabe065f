"""Messages between a process and rank 0, as lines of JSON."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import Any, TypeAlias

Message: TypeAlias = dict[str, Any]

JoinMessage: TypeAlias = Message
"""What a process tells of itself when it joins, once on each of its two channels."""

_JOIN_TYPES = {
    "channel": str,
    "rank": int,
    "local_rank": int,
    "pid": int,
    "id": str,
    "host": str,
    "name": str,
}

LAST_COLLECTIVE = "shutdown"
"""The collective after which the processes close their channels."""

_LONGEST = 1 << 20  # bytes of a message; a connection that sends more is closed
# Characters of descriptions of tensors. Longer ones are compared by their
# digest.
_LONGEST_TEXT = 30_000
_READ_AT_ONCE = 1 << 16  # bytes


class Channel:
    """A connection over which messages travel both ways."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.fileno = connection.fileno
        self.close = connection.close
        self.is_barrier = False  # at rank 0, once the other end's join message says so
        self._incomplete = bytearray()  # the beginning of a message
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, **message: Any) -> None:
        """Send a message.

        If the other end has closed, it is lost, and the next read reports that.
        """
        with suppress(OSError):
            self.socket.sendall(json.dumps(message).encode() + b"\n")

    def read(self) -> list[Message] | None:
        """The complete messages that have arrived; ``None`` at the end.

        Waits if nothing has arrived yet.
        """
        try:
            received = self.socket.recv(_READ_AT_ONCE)
        except TimeoutError:
            raise
        except OSError:
            return None
        if not received or len(self._incomplete) + len(received) > _LONGEST + _READ_AT_ONCE:
            return None
        # Search only the new bytes: a message in many pieces is not copied
        # with each piece.
        complete, newline, incomplete = received.rpartition(b"\n")
        if not newline:
            self._incomplete += received
            return []
        lines = bytes(self._incomplete + complete).split(b"\n")
        self._incomplete = bytearray(incomplete)
        return [_parse(line) for line in lines]

    def receive(self, timeout: float) -> Message | None:
        """The next message; ``None`` once the other end has closed.

        `TimeoutError`: nothing comes in time.
        """
        self.socket.settimeout(timeout)
        while True:
            messages = self.read()
            if messages is None:
                return None
            if messages:
                return messages[0]


def _parse(text: bytes) -> Message:
    """The dict in a line of JSON; empty if the line contains anything else."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):  # the latter for brackets that are nested too deeply
        return {}
    return value if isinstance(value, dict) else {}


def is_join_message(message: Message) -> bool:
    has_types = all(type(message.get(key)) is kind for key, kind in _JOIN_TYPES.items())
    return has_types and message["channel"] in ("barrier", "control")


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """A collective's name and tensors, on which all processes must agree."""

    name: str
    count: int = 0
    tensors: tuple[str, ...] = ()
    digest: str = ""  # of the descriptions, in place of them if they are long

    @classmethod
    def of(cls, name: str, tensors: Sequence[str]) -> Fingerprint:
        text = json.dumps(tensors)
        if len(text) <= _LONGEST_TEXT:
            return cls(name, len(tensors), tuple(tensors))
        digest = blake2b(text.encode(), digest_size=16).hexdigest()
        return cls(name, len(tensors), digest=digest)

    @classmethod
    def from_message(cls, message: Message) -> Fingerprint:
        """The fingerprint in a message.

        If there is none, `UNREADABLE`, which never agrees.
        """
        match message.get("enter"):
            case {
                "name": str(name),
                "count": int(count),
                "tensors": [*texts],
                "digest": str(digest),
            } if all(isinstance(text, str) for text in texts):
                return cls(name, count, tuple(texts), digest)
            case _:
                return UNREADABLE

    def difference(self, rank_0: Fingerprint) -> str:
        """The difference from rank 0's, as the end of a sentence on the process."""
        if self.name != rank_0.name:
            return (
                f"calls {self.name} where rank 0 calls {rank_0.name}; "
                "every process makes the same calls in order"
            )
        gives = f"gives {self.name}"
        if self.count != rank_0.count:
            return (
                f"{gives} {self.count} tensors where rank 0 gives {rank_0.count}; "
                "give the same tree everywhere"
            )
        hint = "give the same structure, shapes and dtypes everywhere"
        for tensor, expected in zip(self.tensors, rank_0.tensors, strict=False):
            if tensor != expected:
                return f"{gives} {tensor} where rank 0 gives {expected}; {hint}"
        return f"{gives} {self.count} tensors of other shapes, dtypes or paths than rank 0; {hint}"


UNREADABLE = Fingerprint("something that is not a collective")


@dataclass(frozen=True, slots=True)
class Request:
    """A process asks rank 0 to enter a collective."""

    fingerprint: Fingerprint
    waited: float = 0.0  # seconds
    # Of the collective, if the process waits in a tree barrier and only tells
    # rank 0 that it does.
    number: int = 0
    # What other processes are told, during the setup of the barrier; true if
    # it succeeds here.
    payload: Any = None
    payloads_of: tuple[int, ...] = ()  # the ranks whose payloads this process is told

    @classmethod
    def from_message(cls, message: Message) -> Request:
        """The request in a message.

        An unreadable one if the message contains anything else.
        """
        match {"waited": 0.0, "number": 0, "payloads_of": [], **message}:
            case {
                "waited": int() | float() as waited,
                "number": int(number),
                "payloads_of": [*ranks],
            } if all(isinstance(rank, int) for rank in ranks):
                fingerprint = Fingerprint.from_message(message)
                return cls(fingerprint, waited, number, message.get("payload"), tuple(ranks))
            case _:
                return cls(UNREADABLE)

    def message(self) -> Message:
        return {
            "enter": asdict(self.fingerprint),
            "waited": self.waited,
            "number": self.number,
            "payload": self.payload,
            "payloads_of": self.payloads_of,
        }
