"""Lines of text over a socket: how the processes of a job talk to its rank 0."""

from __future__ import annotations

import json
import socket
from typing import Any

LONGEST = 1 << 20
"""Bytes of a line; whoever sends more is not one of us."""


class Line:
    """A connection that carries lines, each ended by a newline."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._buffer = bytearray()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def fileno(self) -> int:
        return self.socket.fileno()

    def send(self, text: str) -> None:
        """Send one line; it is lost where the other end has gone, which its reader will find out."""
        try:
            self.socket.sendall(text.encode() + b"\n")
        except OSError:
            pass

    def say(self, **words: Any) -> None:
        """Send one line of JSON."""
        self.send(json.dumps(words))

    def read(self) -> list[str] | None:
        """The lines that have come in; ``None`` once the other end has gone. Waits if there is nothing yet."""
        try:
            received = self.socket.recv(65536)
        except TimeoutError:
            raise
        except OSError:
            return None
        if not received or len(self._buffer) > LONGEST:
            return None
        self._buffer += received
        *whole, rest = self._buffer.split(b"\n")
        self._buffer = bytearray(rest)
        return [line.decode(errors="replace") for line in whole]

    def next(self, timeout: float) -> str | None:
        """The one line that is expected next; ``None`` once the other end has gone, `TimeoutError` if it is late."""
        self.socket.settimeout(timeout)
        found: list[str] | None = []
        while found == []:
            found = self.read()
        return found[0] if found else None

    def close(self) -> None:
        self.socket.close()


def parsed(text: str) -> dict[str, Any]:
    """A line of JSON as a dict; an empty one if it is none."""
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
