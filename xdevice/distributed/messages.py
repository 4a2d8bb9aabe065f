"""Messages between a process and its launcher, as lines of JSON."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import Any, TypeAlias

Message: TypeAlias = dict[str, Any]

LAST_COLLECTIVE = "shutdown"
"""The collective after which the processes close their channels."""

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
        self._incomplete = bytearray()  # the beginning of a message

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
        except OSError:
            return None
        if not received:
            return None
        complete, newline, incomplete = received.rpartition(b"\n")
        if not newline:
            self._incomplete += received
            return []
        lines = bytes(self._incomplete + complete).split(b"\n")
        self._incomplete = bytearray(incomplete)
        return [json.loads(line) for line in lines]

    def receive(self) -> Message | None:
        """The next message; ``None`` once the other end has closed."""
        messages: list[Message] | None = []
        while messages == []:
            messages = self.read()
        return messages[0] if messages else None


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
        fields = message["enter"]
        return cls(fields["name"], fields["count"], tuple(fields["tensors"]), fields["digest"])

    def message(self) -> Message:
        return {"enter": asdict(self)}

    def text(self) -> str:
        """The collective and its tensors, in a line."""
        if not self.count:
            return self.name
        return f"{self.name} with {', '.join(self.tensors) or f'{self.count} tensors'}"

    def bits(self) -> bytes:
        """32 bytes that differ if the fingerprints do."""
        return blake2b(json.dumps(asdict(self)).encode(), digest_size=32).digest()

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
