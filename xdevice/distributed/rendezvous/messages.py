"""Messages between a process and rank 0, lines of JSON: a join message, then requests to enter collectives."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import Any

JoinMessage = dict[
    str, Any
]  # what a process says of itself when it joins, once on each of its two channels
_JOIN_TYPES = {
    "channel": str,
    "rank": int,
    "local_rank": int,
    "pid": int,
    "id": str,
    "host": str,
    "name": str,
}

_LONGEST = 1 << 20  # bytes of a message; a connection that sends more is closed
_LONGEST_TEXT = (
    30_000  # characters of descriptions of tensors; longer ones are compared by their digest
)
_AT_ONCE = 1 << 16  # bytes that are read


class Channel:
    def __init__(self, connection: socket.socket) -> None:
        self.socket, self.fileno, self.close = connection, connection.fileno, connection.close
        self.is_barrier = False  # at rank 0, once the process at the other end has said so
        self._rest = bytearray()  # the beginning of a message that is not complete
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, **message: Any) -> None:
        """Send a message; it is lost if the other end has closed, which the next read reports."""
        with suppress(OSError):
            self.socket.sendall(json.dumps(message).encode() + b"\n")

    def read(self) -> list[dict[str, Any]] | None:
        """The messages that have arrived; ``None`` once the other end has closed. Waits if nothing has arrived yet."""
        try:
            received = self.socket.recv(_AT_ONCE)
        except TimeoutError:
            raise
        except OSError:
            return None
        if not received or len(self._rest) + len(received) > _LONGEST + _AT_ONCE:
            return None
        # search only the new bytes: a message that arrives in many pieces is not copied with each
        whole, end, rest = received.rpartition(b"\n")
        if not end:
            self._rest += received
            return []
        lines = bytes(self._rest + whole).split(b"\n")
        self._rest = bytearray(rest)
        return [parsed(line) for line in lines]

    def receive(self, timeout: float) -> dict[str, Any] | None:
        """The next message; ``None`` once the other end has closed, `TimeoutError` if it is late."""
        self.socket.settimeout(timeout)
        found: list[dict[str, Any]] | None = []
        while found == []:
            found = self.read()
        return found[0] if found else None


def parsed(text: bytes) -> dict[str, Any]:
    """The dict in a line of JSON; an empty one if the line contains anything else."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):  # brackets nested too deep are the latter
        return {}
    return found if isinstance(found, dict) else {}


def is_join_message(message: dict[str, Any]) -> bool:
    typed = all(type(message.get(key)) is kind for key, kind in _JOIN_TYPES.items())
    return typed and message["channel"] in ("barrier", "control")


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What all processes must agree on before a collective: its name, and a description of each tensor."""

    name: str
    count: int = 0
    tensors: tuple[str, ...] = ()
    digest: str = ""  # in place of the descriptions where they are long

    @classmethod
    def of(cls, name: str, tensors: Sequence[str]) -> Fingerprint:
        text = json.dumps(tensors)
        if len(text) <= _LONGEST_TEXT:
            return cls(name, len(tensors), tuple(tensors))
        return cls(name, len(tensors), digest=blake2b(text.encode(), digest_size=16).hexdigest())

    @classmethod
    def read(cls, message: dict[str, Any]) -> Fingerprint:
        """The fingerprint in a message; `UNREADABLE`, which no other process has, if there is none."""
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

    def difference(self, zero: Fingerprint) -> str:
        """How this differs from rank 0's, as the end of a sentence about the process."""
        if self.name != zero.name:
            return f"calls {self.name} where rank 0 calls {zero.name}; every process makes the same calls in order"
        gives = f"gives {self.name}"
        if self.count != zero.count:
            return f"{gives} {self.count} tensors where rank 0 gives {zero.count}; give the same tree everywhere"
        alike = "give the same structure, shapes and dtypes everywhere"
        for mine, its in zip(self.tensors, zero.tensors, strict=False):
            if mine != its:
                return f"{gives} {mine} where rank 0 gives {its}; {alike}"
        return f"{gives} {self.count} tensors of other shapes, dtypes or paths than rank 0; {alike}"


UNREADABLE = Fingerprint("something that is not a collective")


@dataclass(frozen=True, slots=True)
class Request:
    fingerprint: Fingerprint
    waited: float = 0.0  # seconds
    number: int = (
        0  # of the collective, where rank 0 is only told that a process waits in a tree barrier
    )
    payload: Any = (
        None  # what other processes are to be told, during barrier setup; true if it goes well here
    )
    payloads_of: tuple[int, ...] = ()  # the ranks whose payloads it is to be told

    @classmethod
    def read(cls, message: dict[str, Any]) -> Request:
        """The request in a message; an unreadable one if the message contains anything else."""
        match {"waited": 0.0, "number": 0, "payloads_of": [], **message}:
            case {
                "waited": int() | float() as waited,
                "number": int(number),
                "payloads_of": [*ranks],
            } if all(isinstance(rank, int) for rank in ranks):
                return cls(
                    Fingerprint.read(message), waited, number, message.get("payload"), tuple(ranks)
                )
            case _:
                return cls(UNREADABLE)

    def message(self) -> dict[str, Any]:
        fields = ("waited", "number", "payload", "payloads_of")
        return {"enter": asdict(self.fingerprint), **{name: getattr(self, name) for name in fields}}
