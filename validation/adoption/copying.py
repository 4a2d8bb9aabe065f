"""A copy of a project, of hard links where the file system has them."""

from __future__ import annotations

import os
import shutil
import subprocess
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from projects import Project

LEFT_OUT = shutil.ignore_patterns(".git", "__pycache__", "*.pyc", "*.egg-info")


def copy(project: Project, checkout: Path | None, to: Path) -> Path:
    """The project's files: those of the checkout, and those of installed packages."""
    if project.commit:
        _copy_checkout(project, _checkout(project, checkout), to)
    for package in project.installed:
        _copy_installed(package, to)
    return to


def version(project: Project, checkout: Path | None) -> str:
    """The checkout's commit, or the version that is installed."""
    if not project.commit:
        return metadata.version(project.distribution.partition("==")[0])
    return _git(_checkout(project, checkout), "rev-parse", "--short=7", "HEAD")


def _checkout(project: Project, checkout: Path | None) -> Path:
    """The folder, cloned if it does not exist."""
    if checkout is None:
        raise SystemExit(f"{project.name}: --checkout is missing; name a folder for its repository")
    if not checkout.exists():
        subprocess.run(
            ["git", "clone", "-q", f"https://github.com/{project.repository}", checkout], check=True
        )
        _git(checkout, "checkout", "-q", project.commit)
    return checkout


def _git(checkout: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-C", checkout, *words], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def _copy_checkout(project: Project, checkout: Path, to: Path) -> None:
    if not project.folders:
        _copy(checkout, to)
    for folder in project.folders:
        _copy(checkout / folder, to / folder)


def _copy_installed(package: str, to: Path) -> None:
    """The package as it is installed, and its shared libraries, which are beside it."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise SystemExit(f"{package} is not installed")
    here = Path(spec.origin).parent
    for folder in [here, *here.parent.glob("*.libs")]:
        _copy(folder, to / folder.name)


def _copy(folder: Path, to: Path) -> None:
    """The folder, or one file."""
    if folder.is_file():
        to.parent.mkdir(parents=True, exist_ok=True)
        _link(str(folder), str(to))
        return
    shutil.copytree(
        folder, to, ignore=LEFT_OUT, copy_function=_link, dirs_exist_ok=True, symlinks=True
    )


def _link(here: str, there: str) -> None:
    try:
        os.link(here, there)
    except OSError:
        shutil.copy2(here, there)
