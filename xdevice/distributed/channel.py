"""Messages between a process and rank 0: each is a line of JSON on a socket."""

import json
import socket
from contextlib import suppress
from typing import Any

LONGEST = 1 << 20
"""Bytes of a message; a connection that sends more is closed."""

_AT_ONCE = 1 << 16


class Channel:
    """A connection that carries dicts, each as one line of JSON."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._rest = bytearray()  # the beginning of a message that is not complete
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def fileno(self) -> int:
        return self.socket.fileno()

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
        if not received or len(self._rest) + len(received) > LONGEST + _AT_ONCE:
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

    def close(self) -> None:
        self.socket.close()


def parsed(text: bytes) -> dict[str, Any]:
    """The dict in a line of JSON; an empty one if the line contains anything else."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):  # brackets nested too deep are the latter
        return {}
    return found if isinstance(found, dict) else {}
