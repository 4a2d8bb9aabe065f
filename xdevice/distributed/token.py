"""The job's token: a secret of its processes, with which a connection proves that it belongs to the job.

`xdevice launch` makes one for each job and puts it into the environment of its processes, which only the same user
can read. Other launchers hand out no secret: on one host, rank 0 leaves one in a file that only the user can read;
across hosts the user has to set ``XDEVICE_TOKEN``, or to give it to `init`. Without a token a job does not listen
beyond loopback.
"""

from __future__ import annotations

import os
import secrets
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from xdevice.errors import ArgumentError, DistributedError
from xdevice.kit.loopback import is_loopback

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xdevice.distributed.seat import Seat

TOKEN = "XDEVICE_TOKEN"
"""The environment variable with the job's token."""

SHORTEST = 16
"""Characters of a token: fewer could be guessed."""


def new_token() -> str:
    """A token that cannot be guessed: 256 random bits."""
    return secrets.token_hex(32)


def checked(token: str, source: str) -> str:
    """The token, if it is long enough."""
    if len(token) < SHORTEST:
        raise ArgumentError(
            f"{source} has {len(token)} characters; give at least {SHORTEST} random ones, as from openssl rand -hex 32"
        )
    return token


def offered(seat: Seat, env: Mapping[str, str] = os.environ) -> bytes:
    """The token, as rank 0 finds it, or makes it for the other processes of this host.

    Raises
    ------
    ArgumentError
        ``XDEVICE_TOKEN`` is too short.
    DistributedError
        The job spans hosts, and has no token; or another user has made the folder for it.
    """
    given = _given(seat, env)
    if given is not None:
        return given
    path, token = _path(seat), new_token()
    new = path.with_suffix(f".{os.getpid()}")
    new.unlink(missing_ok=True)
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
        file.write(token)
    new.replace(path)
    return token.encode()


def found(seat: Seat, env: Mapping[str, str] = os.environ) -> bytes:
    """The token, as the other ranks find it; `FileNotFoundError` where rank 0 has not made it yet."""
    given = _given(seat, env)
    return _path(seat).read_bytes() if given is None else given


def discard(seat: Seat) -> None:
    """Remove the token's file, once all processes have met."""
    with suppress(OSError, DistributedError):
        _path(seat).unlink()


def _given(seat: Seat, env: Mapping[str, str]) -> bytes | None:
    if seat.token:
        return seat.token.encode()
    if TOKEN in env:
        return checked(env[TOKEN], TOKEN).encode()
    if is_loopback(seat.host):
        return None
    raise DistributedError(
        f"{seat.launcher} gives the processes of several hosts no secret; set {TOKEN} to the same random text for all "
        "of them, as from openssl rand -hex 32"
    )


def _path(seat: Seat) -> Path:
    user = os.getuid() if hasattr(os, "getuid") else 0
    folder = Path(tempfile.gettempdir(), f"xdevice-{user}")
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if os.name == "posix" and (not stat.S_ISDIR(status.st_mode) or status.st_uid != user or status.st_mode & 0o077):
        raise DistributedError(f"{str(folder)!r} is open to other users; remove it, or set {TOKEN} for all processes")
    return folder / str(seat.port)
