"""The handshake: both ends of a connection prove that they know the job's token.

    process -> rank 0    b"XDV1", and 32 random bytes
    rank 0  -> process   b"XDV1", and 32 random bytes
    process -> rank 0    HMAC-SHA256(token, "process", both random numbers)
    rank 0  -> process   HMAC-SHA256(token, "rank 0", both random numbers)

The token itself is never sent. Everything has a fixed length, so nothing that
an unauthenticated end sends is parsed. Both responses cover the random bytes
of both ends, so they cannot be replayed, and the role, so they cannot be
reflected. Later messages are neither encrypted nor authenticated: the
handshake keeps out other users, not an attacker who changes packets. An
unauthenticated connection costs rank 0 a bounded number of bytes, descriptors
and seconds, and is told nothing.

`xdevice launch` puts a token into the environment of its processes, which only
the same user can read. Under other launchers rank 0 writes one to a file that
only the user can read, on one host; across hosts the user has to give it.
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

from xdevice.distributed.process_info import ProcessInfo
from xdevice.errors import ArgumentError, DistributedError
from xdevice.distributed.deadlines import HANDSHAKE
from xdevice.kit.loopback import is_loopback

TOKEN = "XDEVICE_TOKEN"  # the environment variable with the job's token
SHORTEST = 16  # characters of a token: fewer could be guessed

MAGIC = b"XDV1"
NONCE = 32
RESPONSE = 32
CHALLENGE = len(MAGIC) + NONCE

# Connections beyond the job's own that may wait for their handshake. One more
# closes the oldest.
UNAUTHENTICATED = 64
_ACCEPTED_AT_ONCE = 64  # connections that are accepted before the job's processes have their turn


# The token


def new_token() -> str:
    return secrets.token_hex(32)


def check_token(token: str, source: str) -> str:
    """The token; `ArgumentError` if it is so short that it could be guessed."""
    if len(token) < SHORTEST:
        hint = f"give at least {SHORTEST} random ones, as from openssl rand -hex 32"
        raise ArgumentError(f"{source} has {len(token)} characters; {hint}")
    return token


def create_token(info: ProcessInfo, env: Mapping[str, str] = os.environ) -> bytes:
    """Rank 0's token: the job's, or a new one in a file for this host."""
    token_of_user = _token_of_user(info, env)
    if token_of_user is not None:
        return token_of_user
    path = _token_file(info)
    token = new_token()
    new = path.with_suffix(f".{os.getpid()}")
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w", encoding="ascii") as file:
        file.write(token)
    new.replace(path)
    return token.encode()


def find_token(info: ProcessInfo, env: Mapping[str, str] = os.environ) -> bytes:
    """The other ranks' token; `FileNotFoundError` until rank 0 has made it."""
    token_of_user = _token_of_user(info, env)
    if token_of_user is not None:
        return token_of_user
    return _token_file(info).read_bytes()


def discard_token(info: ProcessInfo) -> None:
    with suppress(OSError, DistributedError):
        _token_file(info).unlink()


def _token_of_user(info: ProcessInfo, env: Mapping[str, str]) -> bytes | None:
    if info.token:
        return info.token.encode()
    if TOKEN in env:
        return check_token(env[TOKEN], TOKEN).encode()
    if is_loopback(info.host):
        return None
    hint = f"set {TOKEN} to the same random text for all of them, as from openssl rand -hex 32"
    raise DistributedError(
        f"{info.launcher} gives the processes of several hosts no secret; {hint}"
    )


def _token_file(info: ProcessInfo) -> Path:
    """The file with the token, in a folder that only this user can read."""
    user = os.getuid() if hasattr(os, "getuid") else 0
    folder = Path(tempfile.gettempdir(), f"xdevice-{user}")
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    is_private = (
        stat.S_ISDIR(status.st_mode) and status.st_uid == user and not status.st_mode & 0o077
    )
    if os.name == "posix" and not is_private:
        raise DistributedError(
            f"{str(folder)!r} is open to other users; remove it, or set {TOKEN} for all processes"
        )
    return folder / str(info.port)


# The handshake of a process


class HandshakeError(Exception):
    """The other end is not rank 0 of this job."""


class RefusedError(ConnectionError):
    """Rank 0 has closed the connection after this process's response."""


def new_challenge() -> bytes:
    return MAGIC + secrets.token_bytes(NONCE)


def response(token: bytes, role: bytes, process: bytes, rank_0: bytes) -> bytes:
    """The proof of one end, from the challenges of both."""
    return hmac.digest(token, role + b"\0" + process + rank_0, "sha256")


def connect(address: tuple[str, int], token: bytes, deadline: float) -> socket.socket:
    """A connection whose ends are authenticated; errors as of `authenticate`."""
    timeout = max(0.1, deadline - time.monotonic())
    with ExitStack() as undo:
        connection = undo.enter_context(socket.create_connection(address, timeout))
        authenticate(connection, token, deadline)
        undo.pop_all()
    return connection


def authenticate(connection: socket.socket, token: bytes, deadline: float) -> None:
    """Prove to rank 0 that this process is of the job, and the reverse.

    `HandshakeError`: another program, or another token. `ConnectionError`: the
    other end has closed. `TimeoutError`: it does not answer by the deadline, a
    time of `time.monotonic`.
    """
    own_challenge = new_challenge()
    connection.sendall(own_challenge)
    its_challenge = _receive(connection, CHALLENGE, deadline, prefix=MAGIC)
    if not its_challenge:
        raise ConnectionError("it closed the connection")
    if not its_challenge.startswith(MAGIC) or len(its_challenge) < CHALLENGE:
        raise HandshakeError("is not rank 0 of an xdevice job")
    connection.sendall(response(token, b"process", own_challenge, its_challenge))
    its_response = _receive(connection, RESPONSE, deadline)
    if not its_response:
        raise RefusedError("it closed the connection")
    if not hmac.compare_digest(
        its_response, response(token, b"rank 0", own_challenge, its_challenge)
    ):
        raise HandshakeError("does not know this job's token, so it is not its rank 0")


def _receive(connection: socket.socket, count: int, deadline: float, prefix: bytes = b"") -> bytes:
    """So many bytes.

    Fewer if the other end closes, or sends something without the prefix.
    """
    received = b""
    while len(received) < count:
        connection.settimeout(max(0.01, deadline - time.monotonic()))
        part = connection.recv(count - len(received))
        if not part:
            break
        received += part
        if not prefix.startswith(received[: len(prefix)]):
            break  # another program, which may never send the rest
    return received


# The handshakes at rank 0


class Connection:
    """An unauthenticated connection."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.fileno = connection.fileno
        self.challenge = new_challenge()
        self.received = b""
        self.deadline = time.monotonic() + HANDSHAKE
        connection.setblocking(False)
        connection.send(self.challenge)  # its buffer is empty, so this does not block


class Acceptor:
    """Accepts connections, and returns those that know the token."""

    def __init__(
        self, listener: socket.socket, token: bytes, expected: int, selector: selectors.BaseSelector
    ) -> None:
        self._listener = listener
        self._token = token
        self._selector = selector
        self._limit = expected + UNAUTHENTICATED  # all connections of the job may come at once
        # The connections that wait for their handshake, the oldest first: an
        # ordered set.
        self.waiting: dict[Connection, None] = {}
        # A descriptor to give up when no other one is left.
        self._spare: int | None = os.open(os.devnull, os.O_RDONLY)
        listener.setblocking(False)
        selector.register(listener, selectors.EVENT_READ, self)

    def accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                accepted = self._listener.accept()[0]
            except OSError as error:  # mostly, no more connections wait
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    self._reject_one()
                return
            try:
                connection = Connection(accepted)
            except OSError:  # the other end has closed it
                accepted.close()
                continue
            if len(self.waiting) >= self._limit:
                oldest = next(iter(self.waiting))
                self._drop(oldest)
            self.waiting[connection] = None
            self._selector.register(connection, selectors.EVENT_READ)

    def authenticated(self, connection: Connection) -> socket.socket | None:
        """The blocking socket, once the handshake is complete.

        Call this when there is data.
        """
        if connection not in self.waiting:
            return None  # dropped after the selector has reported it
        try:
            # One byte more than a handshake has: if it comes, it makes the
            # response wrong.
            part = connection.socket.recv(CHALLENGE + RESPONSE + 1 - len(connection.received))
        except BlockingIOError:
            return None
        except OSError:
            part = b""
        connection.received += part
        its_challenge = connection.received[:CHALLENGE]
        its_response = connection.received[CHALLENGE:]
        is_ours = its_challenge.startswith(MAGIC[: len(its_challenge)])
        if is_ours and part and len(its_response) < RESPONSE:
            return None  # more is to come
        if not is_ours or not hmac.compare_digest(
            its_response, self._response(b"process", connection)
        ):
            self._drop(connection)
            return None
        self._forget(connection)
        connection.socket.setblocking(True)
        with suppress(OSError):  # if it is closed, reading will report it
            connection.socket.sendall(self._response(b"rank 0", connection))
        return connection.socket

    def _response(self, role: bytes, connection: Connection) -> bytes:
        its_challenge = connection.received[:CHALLENGE]
        return response(self._token, role, its_challenge, connection.challenge)

    def drop_expired(self) -> None:
        now = time.monotonic()
        for connection in list(self.waiting):
            if now >= connection.deadline:
                self._drop(connection)

    def stop(self) -> None:
        for connection in list(self.waiting):
            self._drop(connection)
        self._selector.unregister(self._listener)
        self.close()

    def close(self) -> None:
        """Close this process's descriptors, and send nothing."""
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None
        self._listener.close()
        for connection in self.waiting:
            connection.socket.close()

    def _reject_one(self) -> None:
        """Accept one connection and close it.

        Otherwise the selector reports it again at once.
        """
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
