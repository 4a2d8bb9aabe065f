"""Where a row's tests are: a sparse checkout of its repository at its tag, or the package that is installed."""

from __future__ import annotations

import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any


def tests_of(row: dict[str, Any], checkouts: Path, mirror: str) -> Path:
    """The folder that the row's paths are relative to."""
    if "installed" in row:
        spec = find_spec(row["installed"])
        if spec is None or spec.origin is None:
            raise SystemExit(
                f"{row['installed']} cannot be imported; pip install {' '.join(row['install'])}"
            )
        return Path(spec.origin).parents[1]
    here = checkouts / f"{row['repository']}@{row['tag']}".replace("/", "+")
    if not here.exists():
        clone(f"{mirror.rstrip('/')}/{row['repository']}", row["tag"], here)
    git(
        "-C",
        here,
        "sparse-checkout",
        "add",
        *files_of(row),
        failed=f"checking out {' '.join(files_of(row))}",
    )
    return here / row.get("folder", "")


def files_of(row: dict[str, Any]) -> list[str]:
    """The folders that the row names, or those at the top of the repository that its tests are in."""
    if "files" in row:
        return list(row["files"])
    of_the_tests = [row["folder"]] if "folder" in row else row["tests"]
    return sorted({path.partition("/")[0] for path in of_the_tests})


def clone(url: str, tag: str, here: Path) -> None:
    """Clone the repository beside its place and move it there: one that was not finished is made again."""
    part = here.with_name(f"{here.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.parent.mkdir(parents=True, exist_ok=True)
    small = "--quiet", "--depth", "1", "--filter=blob:none", "--sparse"
    git("clone", *small, "--branch", tag, url, part, failed=f"cloning {url} at {tag}")
    part.rename(here)


def git(*words: str | Path, failed: str) -> None:
    try:
        done = subprocess.run(["git", *map(str, words)], capture_output=True, text=True)
    except FileNotFoundError:
        raise SystemExit("git is needed, and was not found; install it") from None
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"git ended with {done.returncode}"]
        raise SystemExit(f"{failed} failed: {said[-1]}")
