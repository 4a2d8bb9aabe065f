"""The rows of rows.toml: other projects, where their tests are, and what these need."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path
from typing import Any

import tomllib

ROWS = Path(__file__).with_name("rows.toml")
KEY = re.compile(r"^#   ((?:\w+, )*\w+)  ", re.MULTILINE)


def read(path: Path = ROWS) -> dict[str, dict[str, Any]]:
    """Each row by its name; a key that the head of the file does not explain is refused."""
    text = path.read_text(encoding="utf-8")
    explained = {key for keys in KEY.findall(text) for key in keys.split(", ")}
    rows = tomllib.loads(text)
    for name, row in rows.items():
        if unknown := set(row) - explained:
            raise SystemExit(
                f"{path.name}: the head does not explain {', '.join(sorted(unknown))}, which {name} has"
            )
    return rows


def at(row: dict[str, Any], tag: str | None) -> dict[str, Any]:
    """The row with another tag; where tests come with a package, the tag is the version that is installed."""
    if "installed" not in row:
        return {**row, "tag": tag or row["tag"]}
    if tag:
        raise SystemExit(
            f"--tag: the tests come with {row['installed']}; install another version of it instead"
        )
    try:
        return {**row, "tag": metadata.version(row["distribution"])}
    except metadata.PackageNotFoundError:
        raise SystemExit(
            f"{row['distribution']} is not installed; pip install {' '.join(row['install'])}"
        ) from None
