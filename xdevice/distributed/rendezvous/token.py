"""The job's token: a secret of its processes, by which a connection is authenticated.

`xdevice launch` puts one into the environment of its processes, which only the same user can read. Under other
launchers rank 0 leaves one in a file that only the user can read, on one host; across hosts the user has to give it.
Without a token a job does not listen beyond loopback.
"""

import os
import secrets
import stat
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from xdevice.distributed.process_info import ProcessInfo
from xdevice.errors import ArgumentError, DistributedError
from xdevice.kit.loopback import is_loopback

TOKEN = "XDEVICE_TOKEN"
"""The environment variable with the job's token."""

SHORTEST = 16
"""Characters of a token: fewer could be guessed."""


def new_token() -> str:
    """A token that cannot be guessed: 256 random bits."""
    return secrets.token_hex(32)


def checked(token: str, source: str) -> str:
    if len(token) < SHORTEST:
        raise ArgumentError(
            f"{source} has {len(token)} characters; give at least {SHORTEST} random ones, as from openssl rand -hex 32"
        )
    return token


def created(info: ProcessInfo, env: Mapping[str, str] = os.environ) -> bytes:
    """The token of rank 0: the one that it was given, or a new one for the processes of this host."""
    given = _given(info, env)
    if given is not None:
        return given
    path, token = _path(info), new_token()
    new = path.with_suffix(f".{os.getpid()}")
    new.unlink(missing_ok=True)
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
        file.write(token)
    new.replace(path)
    return token.encode()


def found(info: ProcessInfo, env: Mapping[str, str] = os.environ) -> bytes:
    """The token of the other ranks; `FileNotFoundError` where rank 0 has not made it yet."""
    given = _given(info, env)
    return _path(info).read_bytes() if given is None else given


def discard(info: ProcessInfo) -> None:
    """Remove the token's file, once all processes have joined."""
    with suppress(OSError, DistributedError):
        _path(info).unlink()


def _given(info: ProcessInfo, env: Mapping[str, str]) -> bytes | None:
    if info.token:
        return info.token.encode()
    if TOKEN in env:
        return checked(env[TOKEN], TOKEN).encode()
    if is_loopback(info.host):
        return None
    raise DistributedError(
        f"{info.launcher} gives the processes of several hosts no secret; set {TOKEN} to the same random text for all "
        "of them, as from openssl rand -hex 32"
    )


def _path(info: ProcessInfo) -> Path:
    user = os.getuid() if hasattr(os, "getuid") else 0
    folder = Path(tempfile.gettempdir(), f"xdevice-{user}")
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if os.name == "posix" and (not stat.S_ISDIR(status.st_mode) or status.st_uid != user or status.st_mode & 0o077):
        raise DistributedError(f"{str(folder)!r} is open to other users; remove it, or set {TOKEN} for all processes")
    return folder / str(info.port)
