"""Where programs are run: checkouts of their repositories, and environments with what they import."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FRAMEWORKS = "torch", "tensorflow", "jax", "paddle", "mxnet"


def checkout(folder: Path, repository: str, commit: str, mirror: str) -> Path:
    """A clone of ``owner/name`` at a commit, as it was committed."""
    here = folder / repository.replace("/", "+")
    if not here.exists():
        told(
            ["git", "clone", "--quiet", f"{mirror.rstrip('/')}/{repository}", str(here)],
            f"cloning {repository}",
        )
    at = subprocess.run(
        ["git", "-C", str(here), "rev-parse", "HEAD"], capture_output=True, text=True
    ).stdout
    detach = ["git", "-C", str(here), "checkout", "--quiet", "--force", "--detach", commit]
    if not at.startswith(commit) and not succeeds(detach):
        raise SystemExit(
            f"{repository} has no commit {commit} in {here}; remove that folder to clone it again"
        )
    told(["git", "-C", str(here), "clean", "-fdxq"])
    return here


def environment(folder: Path, framework: str, needs: list[str]) -> Path:
    """The Python of an environment with a framework, this checkout of xdevice, and what a program needs."""
    here = folder / f"venv-{framework}"
    python = here / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    done = here / "installed.txt"
    if not python.exists():
        told([sys.executable, "-m", "venv", str(here)])
    missing = [f"-e{ROOT}[{framework}]", *needs]
    if done.exists():
        missing = [name for name in missing if name not in done.read_text().split()]
    if missing:
        install = [str(python), "-m", "pip", "install"]
        if shutil.which("uv"):  # which knows PyTorch's builds without CUDA
            install = ["uv", "pip", "install", "--python", str(python)]
        told([*install, "--quiet", *missing], f"installing {' '.join(missing)}")
        with done.open("a") as file:
            file.write("\n".join(missing) + "\n")
    return python


def copied(source: Path, target: Path) -> None:
    """A copy of a file or folder, in place of what was there."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
    else:
        shutil.copy(source, target)


def succeeds(words: list[str]) -> bool:
    return subprocess.run(words, capture_output=True).returncode == 0


def told(words: list[str], what: str = "") -> None:
    """Run a command, say what it does, and end with its error where it fails."""
    if what:
        print(f"{what} …", file=sys.stderr, flush=True)
    if shutil.which(words[0]) is None:
        raise SystemExit(f"{words[0]} is needed, and was not found; install it")
    if failed := subprocess.run(words).returncode:
        raise SystemExit(f"{' '.join(words)} ended with {failed}")
