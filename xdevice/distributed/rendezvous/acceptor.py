"""Rank 0's acceptor: it listens at a port, and holds the connections that are not authenticated yet.

Such a connection costs a bounded number of bytes, descriptors and seconds, and is told nothing.
"""

import errno
import os
import selectors
import socket
import time
from contextlib import suppress

from xdevice.distributed.failures.timeouts import HANDSHAKE
from xdevice.distributed.rendezvous.handshake import CHALLENGE, MAGIC, RESPONSE, challenge, verified

UNAUTHENTICATED = 64
"""Connections, beyond those of the job itself, that may wait for their handshake; one more closes the oldest."""

_AT_ONCE = 64  # connections accepted before the processes of the job have their turn


class Connection:
    """A connection that is not authenticated yet."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket, self.challenge, self.received = connection, challenge(), b""
        self.deadline = time.monotonic() + HANDSHAKE
        connection.setblocking(False)
        connection.send(self.challenge)  # its buffer is empty, so this does not block

    def fileno(self) -> int:
        return self.socket.fileno()


class Acceptor:
    """Accepts connections, and returns those that have proved that they know the token."""

    def __init__(self, listener: socket.socket, token: bytes, own: int, selector: selectors.BaseSelector) -> None:
        self._listener, self._token, self._selector = listener, token, selector
        self._most = own + UNAUTHENTICATED  # all ``own`` connections of the job may come at once
        self._connections: dict[Connection, None] = {}  # the oldest first
        self._spare: int | None = os.open(os.devnull, os.O_RDONLY)
        listener.setblocking(False)
        selector.register(listener, selectors.EVENT_READ, self)

    def next_deadline(self) -> float | None:
        """The deadline of the oldest connection, a time of `time.monotonic`."""
        return next((connection.deadline for connection in self._connections), None)

    def accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                accepted = self._listener.accept()[0]
            except OSError as error:  # mostly, none is left
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    self._reject_one()
                return
            try:
                connection = Connection(accepted)
            except OSError:  # it is closed already
                accepted.close()
                continue
            if len(self._connections) >= self._most:
                self._drop(next(iter(self._connections)))
            self._connections[connection] = None
            self._selector.register(connection, selectors.EVENT_READ)

    def authenticated(self, connection: Connection) -> socket.socket | None:
        """The socket, blocking, once the connection has completed the handshake; call it when there is data."""
        if connection not in self._connections:
            return None  # dropped since it was found ready
        try:
            # one byte more than is due, which no process sends: it makes the response wrong
            received = connection.socket.recv(CHALLENGE + RESPONSE + 1 - len(connection.received))
        except BlockingIOError:
            return None
        except OSError:
            received = b""
        connection.received += received
        answer = None
        if received and connection.received.startswith(MAGIC[: len(connection.received)]):
            if len(connection.received) < CHALLENGE + RESPONSE:
                return None
            answer = verified(self._token, connection.received, connection.challenge)
        if answer is None:
            self._drop(connection)
            return None
        self._forget(connection)
        connection.socket.setblocking(True)
        with suppress(OSError):  # it is closed, which reading will report
            connection.socket.sendall(answer)
        return connection.socket

    def drop_expired(self) -> None:
        now = time.monotonic()
        for connection in [connection for connection in self._connections if now >= connection.deadline]:
            self._drop(connection)

    def stop(self) -> None:
        for connection in list(self._connections):
            self._drop(connection)
        self._selector.unregister(self._listener)
        self.close()

    def close(self) -> None:
        """Close this process's descriptors, and send nothing: also in a forked child."""
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None
        self._listener.close()
        for connection in self._connections:
            connection.socket.close()

    def _reject_one(self) -> None:
        """Accept one connection and close it: without descriptors it would be reported again and again."""
        if self._spare is None:
            time.sleep(0.05)  # another thread has taken the last descriptor
        else:
            os.close(self._spare)
        with suppress(OSError):
            self._listener.accept()[0].close()
        self._spare = None
        with suppress(OSError):
            self._spare = os.open(os.devnull, os.O_RDONLY)

    def _forget(self, connection: Connection) -> None:
        del self._connections[connection]
        self._selector.unregister(connection)

    def _drop(self, connection: Connection) -> None:
        self._forget(connection)
        connection.socket.close()
