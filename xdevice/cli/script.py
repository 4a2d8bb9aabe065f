"""The script that a command is given."""

from __future__ import annotations

import shutil
from pathlib import Path

from xdevice.errors import ArgumentError


def script_at(path: str) -> str:
    """The path, if there is a file; of a command's name, such as ``torchrun``, that of its Python file on PATH."""
    if Path(path).is_file():
        return path
    command = shutil.which(path) if Path(path).name == path else None
    if command is not None and _is_python(command):
        return command
    what = "is a folder, not a script" if Path(path).is_dir() else "does not exist"
    raise ArgumentError(f"{path!r} {what}; give the path of a Python file, as seen from {str(Path.cwd())!r}")


def _is_python(path: str) -> bool:
    """Whether the command is a Python file, as those are that pip installs."""
    with open(path, "rb") as file:
        return file.read(2) == b"#!" and b"python" in file.read(512)


_WITHOUT_VALUE = ("--stand-in", "--json", "--normalize", "--strict", "-h", "--help")


def script_position(arguments: list[str]) -> int:
    """Where SCRIPT is in the arguments of ``run`` if options come before it; their number if it is not there."""
    at = 1
    while at < len(arguments) and arguments[at].startswith("-"):
        if arguments[at] == "--":
            return at + 1
        at += 1 if arguments[at] in _WITHOUT_VALUE or "=" in arguments[at] else 2
    return min(at, len(arguments))
