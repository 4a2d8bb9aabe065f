"""The secret token of a job that ``xdevice launch`` starts: all its launchers have the same."""

import os
import sys
from pathlib import Path

from xdevice.distributed.launcher_variables import Nodes
from xdevice.distributed.rendezvous.authentication import TOKEN, check_token, new_token
from xdevice.errors import ArgumentError


def token_of(nodes: Nodes, token_file: Path | None) -> str:
    """The job's token from the file, else from the environment; else a new one, if that is enough.

    On one host it is enough. On several hosts the launcher of node 0 prints a
    new token, and the user gives it to the other launchers.
    """
    if token_file is not None:
        return token_in(token_file)
    if nodes.count == 1:
        return new_token()
    if TOKEN in os.environ:
        return check_token(os.environ[TOKEN], TOKEN)
    if nodes.source:
        raise ArgumentError(
            f"{nodes.source} starts the launchers of {nodes.count} nodes, which need the same "
            f"token; set {TOKEN} before, as from openssl rand -hex 32, or give them the same "
            "--token-file"
        )
    if nodes.node > 0:
        raise ArgumentError(
            f"node {nodes.node} needs the job's token; set {TOKEN} to what the launcher of node 0 "
            "prints, or give all launchers the same --token-file"
        )
    token = new_token()
    command = f"xdevice: start the launchers of the other nodes with {TOKEN}={token}"
    print(command, file=sys.stderr, flush=True)
    return token


def token_in(path: Path) -> str:
    """The token in the file, which the first launcher creates."""
    try:
        if not path.exists():
            _create_token_file(path)
        if path.stat().st_mode & 0o077:
            raise ArgumentError(
                f"--token-file {str(path)!r} is open to other users; chmod 600 {str(path)!r}"
            )
        return check_token(path.read_text(encoding="utf-8").strip(), f"--token-file {str(path)!r}")
    except (OSError, UnicodeError) as error:
        raise ArgumentError(
            f"--token-file {str(path)!r} cannot be read or made: {error}"
        ) from error


def _create_token_file(path: Path) -> None:
    """Create the complete file in one step, unless another launcher has created it already."""
    draft = path.with_name(f"{path.name}.{os.getpid()}.{new_token()[:8]}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w", encoding="ascii") as file:
        file.write(new_token())
    try:
        os.link(draft, path)
    except FileExistsError:
        pass  # another launcher was quicker: its token counts
    finally:
        draft.unlink()
