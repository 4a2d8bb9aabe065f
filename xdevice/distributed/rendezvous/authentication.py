"""How a connection is authenticated: both ends prove that they know the job's token, a secret that is never sent.

    process -> rank 0    b"XDV1", and 32 random bytes
    rank 0  -> process   b"XDV1", and 32 random bytes
    process -> rank 0    HMAC-SHA256(token, "process", both random numbers)
    rank 0  -> process   HMAC-SHA256(token, "rank 0", both random numbers)

Everything has a fixed length, so nothing that an unauthenticated end sends is parsed. Both responses cover the random
bytes of both ends, so they cannot be replayed, and the role, so they cannot be reflected. Later messages are neither
encrypted nor authenticated: the handshake keeps out other users, not an attacker who changes packets. Until then a
connection costs rank 0 a bounded number of bytes, descriptors and seconds, and is told nothing.

`xdevice launch` puts a token into the environment of its processes, which only the same user can read. Under other
launchers rank 0 leaves one in a file that only the user can read, on one host; across hosts the user has to give it.
Without a token a job does not listen beyond loopback.
"""

import errno
import hmac
import os
import secrets
import selectors
import socket
import stat
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

from xdevice.distributed.failures import HANDSHAKE
from xdevice.distributed.process_info import ProcessInfo
from xdevice.errors import ArgumentError, DistributedError
from xdevice.kit.loopback import is_loopback

TOKEN = "XDEVICE_TOKEN"  # the environment variable with the job's token
SHORTEST = 16  # characters of a token: fewer could be guessed

MAGIC = b"XDV1"
NONCE = RESPONSE = 32
CHALLENGE = len(MAGIC) + NONCE

UNAUTHENTICATED = 64  # connections beyond the job's own that may wait for their handshake; one more closes the oldest
_AT_ONCE = 64  # connections accepted before the processes of the job have their turn


def new_token() -> str:
    return secrets.token_hex(32)


def checked(token: str, source: str) -> str:
    if len(token) < SHORTEST:
        hint = f"give at least {SHORTEST} random ones, as from openssl rand -hex 32"
        raise ArgumentError(f"{source} has {len(token)} characters; {hint}")
    return token


def create_token(info: ProcessInfo, env: Mapping[str, str] = os.environ) -> bytes:
    """The token of rank 0: the one that it was given, or a new one for the processes of this host."""
    if (given := _given(info, env)) is not None:
        return given
    path, token = _path(info), new_token()
    new = path.with_suffix(f".{os.getpid()}")
    new.unlink(missing_ok=True)
    with open(
        os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii"
    ) as file:
        file.write(token)
    new.replace(path)
    return token.encode()


def find_token(info: ProcessInfo, env: Mapping[str, str] = os.environ) -> bytes:
    """The token of the other ranks; `FileNotFoundError` where rank 0 has not made it yet."""
    given = _given(info, env)
    return _path(info).read_bytes() if given is None else given


def discard_token(info: ProcessInfo) -> None:
    with suppress(OSError, DistributedError):
        _path(info).unlink()


def _given(info: ProcessInfo, env: Mapping[str, str]) -> bytes | None:
    if info.token:
        return info.token.encode()
    if TOKEN in env:
        return checked(env[TOKEN], TOKEN).encode()
    if is_loopback(info.host):
        return None
    hint = f"set {TOKEN} to the same random text for all of them, as from openssl rand -hex 32"
    raise DistributedError(
        f"{info.launcher} gives the processes of several hosts no secret; {hint}"
    )


def _path(info: ProcessInfo) -> Path:
    user = os.getuid() if hasattr(os, "getuid") else 0
    folder = Path(tempfile.gettempdir(), f"xdevice-{user}")
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if os.name == "posix" and (
        not stat.S_ISDIR(status.st_mode) or status.st_uid != user or status.st_mode & 0o077
    ):
        raise DistributedError(
            f"{str(folder)!r} is open to other users; remove it, or set {TOKEN} for all processes"
        )
    return folder / str(info.port)


class HandshakeError(Exception):
    """The other end is not rank 0 of this job."""


class RefusedError(ConnectionError):
    """Rank 0 has closed the connection after this process's response."""


def challenge() -> bytes:
    return MAGIC + secrets.token_bytes(NONCE)


def response(token: bytes, role: bytes, process: bytes, rank_0: bytes) -> bytes:
    return hmac.digest(token, role + b"\0" + process + rank_0, "sha256")


def connected(address: tuple[str, int], token: bytes, deadline: float) -> socket.socket:
    """A connection to that address on which both ends are authenticated; errors are those of `authenticate`."""
    with ExitStack() as undo:
        connection = undo.enter_context(
            socket.create_connection(address, max(0.1, deadline - time.monotonic()))
        )
        authenticate(connection, token, deadline)
        undo.pop_all()
    return connection


def authenticate(connection: socket.socket, token: bytes, deadline: float) -> None:
    """Prove to rank 0 that this process is of the job, and have rank 0 prove it.

    `HandshakeError` for another program or another token, `ConnectionError` where the other end has closed, and
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
        raise (RefusedError if responded else ConnectionError)("it closed the connection")
    return found


class Connection:
    """A connection that is not authenticated yet."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket, self.fileno, self.challenge, self.received = (
            connection,
            connection.fileno,
            challenge(),
            b"",
        )
        self.deadline = time.monotonic() + HANDSHAKE
        connection.setblocking(False)
        connection.send(self.challenge)  # its buffer is empty, so this does not block


class Acceptor:
    """Accepts connections, and returns those that have proved that they know the token."""

    def __init__(
        self, listener: socket.socket, token: bytes, own: int, selector: selectors.BaseSelector
    ) -> None:
        self._listener, self._token, self._selector = listener, token, selector
        self._most = own + UNAUTHENTICATED  # all ``own`` connections of the job may come at once
        self.waiting: dict[Connection, None] = {}  # for their handshake, the oldest first
        self._spare: int | None = os.open(os.devnull, os.O_RDONLY)
        listener.setblocking(False)
        selector.register(listener, selectors.EVENT_READ, self)

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
            if len(self.waiting) >= self._most:
                self._drop(next(iter(self.waiting)))
            self.waiting[connection] = None
            self._selector.register(connection, selectors.EVENT_READ)

    def authenticated(self, connection: Connection) -> socket.socket | None:
        """The socket, blocking, once the connection has completed the handshake; call it when there is data."""
        if connection not in self.waiting:
            return None  # dropped since it was found ready
        try:
            # one byte more than is due, which no process sends: it makes the response wrong
            received = connection.socket.recv(CHALLENGE + RESPONSE + 1 - len(connection.received))
        except BlockingIOError:
            return None
        except OSError:
            received = b""
        connection.received += received
        process, given = connection.received[:CHALLENGE], connection.received[CHALLENGE:]
        is_ours = process.startswith(MAGIC[: len(process)])
        if is_ours and received and len(given) < RESPONSE:
            return None  # the rest is to come
        if not is_ours or not hmac.compare_digest(given, self._response(b"process", connection)):
            self._drop(connection)
            return None
        self._forget(connection)
        connection.socket.setblocking(True)
        with suppress(OSError):  # it is closed, which reading will report
            connection.socket.sendall(self._response(b"rank 0", connection))
        return connection.socket

    def _response(self, role: bytes, connection: Connection) -> bytes:
        return response(self._token, role, connection.received[:CHALLENGE], connection.challenge)

    def drop_expired(self) -> None:
        now = time.monotonic()
        for connection in [connection for connection in self.waiting if now >= connection.deadline]:
            self._drop(connection)

    def stop(self) -> None:
        for connection in list(self.waiting):
            self._drop(connection)
        self._selector.unregister(self._listener)
        self.close()

    def close(self) -> None:
        """Close this process's descriptors, and send nothing: also in a forked child."""
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None
        self._listener.close()
        for connection in self.waiting:
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
        del self.waiting[connection]
        self._selector.unregister(connection)

    def _drop(self, connection: Connection) -> None:
        self._forget(connection)
        connection.socket.close()
