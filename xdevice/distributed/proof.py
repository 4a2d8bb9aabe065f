"""How a connection proves that both of its ends know the job's token, which itself is never sent.

    process -> rank 0    b"XDV1", and 32 random bytes
    rank 0  -> process   b"XDV1", and 32 random bytes
    process -> rank 0    HMAC-SHA256(token, "process", both random numbers)
    rank 0  -> process   HMAC-SHA256(token, "rank 0", both random numbers)

Everything has a fixed length, so nothing that an unproved end sends is parsed. The random bytes of both ends are in
both proofs, which therefore cannot be used a second time; the roles are in them, so they cannot be reflected. What is
said later is neither encrypted nor authenticated: the proof keeps out other users, not one who changes packets.
"""

from __future__ import annotations

import hmac
import secrets
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket

MAGIC = b"XDV1"
NONCE = PROOF = 32
GREETING = len(MAGIC) + NONCE


class UnprovedError(Exception):
    """The other end is not rank 0 of this job."""


class HungUpError(ConnectionError):
    """Rank 0 has closed the connection; ``asked`` if it had been sent a proof."""

    def __init__(self, asked: bool) -> None:
        super().__init__("it hung up")
        self.asked = asked


def greeting() -> bytes:
    """What each end sends first."""
    return MAGIC + secrets.token_bytes(NONCE)


def proof(token: bytes, role: bytes, process: bytes, rank_0: bytes) -> bytes:
    """The proof of one end, over the greetings of both."""
    return hmac.digest(token, role + b"\0" + process + rank_0, "sha256")


def proves(token: bytes, theirs: bytes, ours: bytes) -> bytes | None:
    """What rank 0 answers to a greeting and a proof; ``None`` if they do not prove that the process is of the job."""
    process, shown = theirs[:GREETING], theirs[GREETING:]
    if hmac.compare_digest(shown, proof(token, b"process", process, ours)):
        return proof(token, b"rank 0", process, ours)
    return None


def prove(connection: socket.socket, token: bytes, deadline: float) -> None:
    """Prove to rank 0 that this process is of the job, and have rank 0 prove it.

    Raises
    ------
    UnprovedError
        The other end is another program, or a rank 0 with another token.
    HungUpError
        The other end has closed the connection, or does not answer by the deadline of `time.monotonic`.
    TimeoutError
        The other end has closed the connection, or does not answer by the deadline of `time.monotonic`.
    """
    ours = greeting()
    connection.sendall(ours)
    theirs = _received(connection, GREETING, deadline, asked=False)
    if not theirs.startswith(MAGIC) or len(theirs) < GREETING:
        raise UnprovedError("is not rank 0 of an xdevice job")
    connection.sendall(proof(token, b"process", ours, theirs))
    shown = _received(connection, PROOF, deadline, asked=True)
    if not hmac.compare_digest(shown, proof(token, b"rank 0", ours, theirs)):
        raise UnprovedError("does not know this job's token, so it is not its rank 0")


def _received(connection: socket.socket, count: int, deadline: float, *, asked: bool) -> bytes:
    """So many bytes; fewer if the other end has closed after some of them."""
    found = b""
    while len(found) < count:
        connection.settimeout(max(0.01, deadline - time.monotonic()))
        part = connection.recv(count - len(found))
        if not part:
            break
        found += part
        if not asked and not MAGIC.startswith(found[: len(MAGIC)]):
            break  # another program
    if not found:
        raise HungUpError(asked)
    return found
