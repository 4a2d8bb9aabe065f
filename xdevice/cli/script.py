"""The script that a command is given."""

from __future__ import annotations

from pathlib import Path

from xdevice.errors import ArgumentError


def script_at(path: str) -> str:
    """The path, if there is a file."""
    if Path(path).is_file():
        return path
    what = "is a folder, not a script" if Path(path).is_dir() else "does not exist"
    raise ArgumentError(f"{path!r} {what}; give the path of a Python file, as seen from {str(Path.cwd())!r}")


_WITHOUT_VALUE = ("--stand-in", "--json", "--normalize", "--strict", "-h", "--help")


def script_position(arguments: list[str]) -> int:
    """Where SCRIPT is in the arguments of ``run`` if options come before it; their number if it is not there."""
    at = 1
    while at < len(arguments) and arguments[at].startswith("-"):
        if arguments[at] == "--":
            return at + 1
        at += 1 if arguments[at] in _WITHOUT_VALUE or "=" in arguments[at] else 2
    return min(at, len(arguments))
