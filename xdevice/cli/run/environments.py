"""The tox environments of the project in this folder: one per framework, named like it."""

import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from xdevice.errors import ArgumentError
from xdevice.framework.adapters import find, registered
from xdevice.launcher.children import Child


def names(asked: Sequence[str]) -> list[str]:
    """The frameworks asked for, or all that the project has an environment for."""
    there = _tox("list", "-q", "--no-desc", *([] if asked else ["-d"])).split()  # -d: without those run on request
    chosen = [str(find(name)) for name in asked] or [name for name in registered() if name in there]
    listed = ", ".join(there) or "none"
    if not chosen:
        raise ArgumentError(
            f"no tox environment here is named like a framework; there are {listed}; "
            "go to a folder whose tox.ini has some"
        )
    for name in chosen:
        if name not in there:
            raise ArgumentError(
                f"no tox environment {name!r} here; there are {listed}; name these, or leave --env tox out"
            )
    return chosen


def preparations(chosen: Sequence[str]) -> list[Child]:
    """A child per environment that creates it and installs what it needs."""
    return [Child(name, [*_command(), "run", "-e", name, "--notest"]) for name in chosen]


def python(name: str) -> str:
    return _tox("config", "-q", "-e", name, "-k", "env_python").partition("=")[2].strip()


def _command() -> list[str]:
    if find_spec("tox") is None:
        raise ArgumentError("--env tox needs tox; pip install tox")
    return [sys.executable, "-m", "tox"]


def _tox(*arguments: str) -> str:
    done = subprocess.run([*_command(), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stdout + done.stderr).strip().splitlines() or [f"exit {done.returncode}"]
        raise ArgumentError(f"tox fails in {str(Path.cwd())!r} ({said[-1]}); tox list should show its environments")
    return done.stdout
