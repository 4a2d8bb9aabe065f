"""Shared libraries that are compiled on first use and kept in the user's cache folder."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path

from xdevice.errors import NotSupportedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

_COMPILERS = "g++", "clang++", "c++"


def compiler() -> str | None:
    """The path of a C++ compiler: ``CXX`` where it is set, else the first of three that is installed."""
    named = os.environ.get("CXX")
    return shutil.which(named) if named else next(filter(None, map(shutil.which, _COMPILERS)), None)


def library(name: str, source: Path, options: Sequence[str], *, key: str, purpose: str) -> Path:
    """The shared library made of a C++ file and of the headers beside it, compiled unless it is in the cache.

    Parameters
    ----------
    name
        The name of the library. It is the only file in its folder.
    source
        The C++ file.
    options
        What the compiler is given beside it.
    key
        What else decides whether a library in the cache fits, such as the framework's version.
    purpose
        What needs the library, for messages.

    Raises
    ------
    NotSupportedError
        There is no compiler, and no library in the cache that another machine has made; or the compiler fails.
    """
    program = compiler()
    headers = sorted(source.parent.glob("*.h"))
    facts = f"{key}\n{platform.machine()}".encode()
    fits = f"{Path(name).stem}-{digest(b''.join([facts, *(path.read_bytes() for path in (source, *headers))]))[:16]}"
    if program is None:
        return _from_elsewhere(fits, name, purpose)
    by = digest("\n".join((os.path.realpath(program), *options)).encode())
    folder = cache() / f"{fits}-{by[:8]}"
    made = folder / name
    if not _is_whole(made):
        with _alone(folder):  # several processes may want it at once: one compiles, the others wait
            if not _is_whole(made):
                _compile([program, *options, str(source)], made, purpose)
    return made


def _from_elsewhere(fits: str, name: str, purpose: str) -> Path:
    """A library in the cache that was compiled on another machine; ``CXX`` that names no compiler refuses it."""
    named = os.environ.get("CXX")
    for folder in [] if named else sorted(cache().glob(f"{fits}-*/")):
        if _is_whole(folder / name):
            return folder / name
    raise NotSupportedError(
        f"{purpose} are compiled when they are first used, and there is no C++ compiler "
        f"({named or ', '.join(_COMPILERS)}); install one, with apt install g++ or "
        f"conda install gxx, set CXX, or copy {cache()} from a machine where they have run"
    )


def cache() -> Path:
    """A writable cache folder of the user, else a temporary folder of this process."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(home) / "xdevice"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return Path(tempfile.mkdtemp(prefix="xdevice-"))
    return folder if os.access(folder, os.W_OK) else Path(tempfile.mkdtemp(prefix="xdevice-"))


def _is_whole(made: Path) -> bool:
    """Whether the file is complete; loading a broken one would crash the process."""
    try:
        return _sum_of(made).read_text() == digest(made.read_bytes())
    except OSError:
        return False


def _sum_of(made: Path) -> Path:
    return made.parent.with_suffix(".sha256")  # not beside the library: frameworks look at all files there


def digest(content: bytes) -> str:
    """A name for content, by which changed content is told."""
    return hashlib.sha256(content).hexdigest()


@contextmanager
def _alone(folder: Path) -> Generator[None]:
    """A context that one process is in at a time, where the system and its file system can lock files."""
    with open(folder.with_suffix(".lock"), "w") as file:
        with suppress(ImportError, OSError):
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)  # until the file is closed
        yield


def _compile(command: list[str], made: Path, purpose: str) -> None:
    made.parent.mkdir(exist_ok=True)
    # where files cannot be locked several may compile: each writes a file of its own, and the last one stays
    handle, unfinished = tempfile.mkstemp(suffix=".so", dir=made.parent.parent)
    os.close(handle)
    try:
        done = subprocess.run([*command, "-o", unfinished], capture_output=True, text=True, check=False)
        if done.returncode:
            words = [line for line in done.stderr.splitlines() if "error" in line] or ["it gives no reason"]
            raise NotSupportedError(
                f"{purpose} could not be compiled: {command[0]} says {words[0]}; install another compiler and set CXX"
            )
        os.replace(unfinished, made)
        _sum_of(made).write_text(digest(made.read_bytes()))
    finally:
        Path(unfinished).unlink(missing_ok=True)
