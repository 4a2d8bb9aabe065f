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
