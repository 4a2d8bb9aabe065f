"""Lines of JSON over a socket: how the processes of a job talk to its rank 0."""

from __future__ import annotations

import json
import socket
from typing import Any

LONGEST = 1 << 20
"""Bytes of a line; a connection that sends more is closed."""

_AT_ONCE = 1 << 16


class Line:
    """A connection that carries dicts, each as one line of JSON."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._rest = bytearray()  # the beginning of a line whose end has not come
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def fileno(self) -> int:
        return self.socket.fileno()

    def say(self, **words: Any) -> None:
        """Send one line; it is lost where the other end has closed, which reading will show."""
        try:
            self.socket.sendall(json.dumps(words).encode() + b"\n")
        except OSError:
            pass

    def read(self) -> list[dict[str, Any]] | None:
        """The messages that have come in; ``None`` once the other end has closed. Waits if nothing has come yet."""
        try:
            received = self.socket.recv(_AT_ONCE)
        except TimeoutError:
            raise
        except OSError:
            return None
        if not received or len(self._rest) + len(received) > LONGEST + _AT_ONCE:
            return None
        # only what is new is searched: a line that comes in many pieces is not copied with each
        whole, end, rest = received.rpartition(b"\n")
        if not end:
            self._rest += received
            return []
        lines = bytes(self._rest + whole).split(b"\n")
        self._rest = bytearray(rest)
        return [parsed(line) for line in lines]

    def next(self, timeout: float) -> dict[str, Any] | None:
        """The message that is expected next; ``None`` once the other end has closed, `TimeoutError` if it is late."""
        self.socket.settimeout(timeout)
        found: list[dict[str, Any]] | None = []
        while found == []:
            found = self.read()
        return found[0] if found else None

    def close(self) -> None:
        self.socket.close()


def parsed(text: bytes) -> dict[str, Any]:
    """The dict of a line of JSON; an empty one if the line holds anything else."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):  # brackets nested too deep are the latter
        return {}
    return found if isinstance(found, dict) else {}
