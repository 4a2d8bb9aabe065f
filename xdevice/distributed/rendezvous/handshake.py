"""The handshake by which both ends of a connection prove that they know the job's token, which is never sent.

    process -> rank 0    b"XDV1", and 32 random bytes
    rank 0  -> process   b"XDV1", and 32 random bytes
    process -> rank 0    HMAC-SHA256(token, "process", both random numbers)
    rank 0  -> process   HMAC-SHA256(token, "rank 0", both random numbers)

Everything has a fixed length, so nothing that an unauthenticated end sends is parsed. Both responses cover the random
bytes of both ends, so they cannot be replayed, and the role, so they cannot be reflected. Later messages are neither
encrypted nor authenticated: the handshake keeps out other users, not an attacker who changes packets.
"""

import hmac
import secrets
import socket
import time

MAGIC = b"XDV1"
NONCE = RESPONSE = 32
CHALLENGE = len(MAGIC) + NONCE


class HandshakeError(Exception):
    """The other end is not rank 0 of this job."""


class DisconnectedError(ConnectionError):
    """Rank 0 has closed the connection; ``responded`` if it had been sent a response."""

    def __init__(self, responded: bool) -> None:
        super().__init__("it closed the connection")
        self.responded = responded


def challenge() -> bytes:
    """What each end sends first."""
    return MAGIC + secrets.token_bytes(NONCE)


def response(token: bytes, role: bytes, process: bytes, rank_0: bytes) -> bytes:
    """The response of one end to the challenges of both."""
    return hmac.digest(token, role + b"\0" + process + rank_0, "sha256")


def verified(token: bytes, theirs: bytes, ours: bytes) -> bytes | None:
    """Rank 0's response to a challenge and a response; ``None`` if they do not prove knowledge of the token."""
    process, given = theirs[:CHALLENGE], theirs[CHALLENGE:]
    if hmac.compare_digest(given, response(token, b"process", process, ours)):
        return response(token, b"rank 0", process, ours)
    return None


def connected(address: tuple[str, int], token: bytes, deadline: float) -> socket.socket:
    """A connection to that address on which both ends are authenticated; errors are those of `authenticate`."""
    connection = socket.create_connection(address, max(0.1, deadline - time.monotonic()))
    try:
        authenticate(connection, token, deadline)
    except BaseException:
        connection.close()
        raise
    return connection


def authenticate(connection: socket.socket, token: bytes, deadline: float) -> None:
    """Prove to rank 0 that this process is of the job, and have rank 0 prove it.

    `HandshakeError` for another program or another token, `DisconnectedError` where the other end has closed, and
    `TimeoutError` where it does not answer by the deadline, a time of `time.monotonic`.
    """
    ours = challenge()
    connection.sendall(ours)
    theirs = _received(connection, CHALLENGE, deadline, responded=False)
    if not theirs.startswith(MAGIC) or len(theirs) < CHALLENGE:
        raise HandshakeError("is not rank 0 of an xdevice job")
    connection.sendall(response(token, b"process", ours, theirs))
    given = _received(connection, RESPONSE, deadline, responded=True)
    if not hmac.compare_digest(given, response(token, b"rank 0", ours, theirs)):
        raise HandshakeError("does not know this job's token, so it is not its rank 0")


def _received(connection: socket.socket, count: int, deadline: float, *, responded: bool) -> bytes:
    """So many bytes; fewer if the other end has closed after some of them."""
    found = b""
    while len(found) < count:
        connection.settimeout(max(0.01, deadline - time.monotonic()))
        part = connection.recv(count - len(found))
        if not part:
            break
        found += part
        if not responded and not MAGIC.startswith(found[: len(MAGIC)]):
            break  # another program
    if not found:
        raise DisconnectedError(responded)
    return found
