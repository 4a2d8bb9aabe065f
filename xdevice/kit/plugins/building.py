"""Compiling a plug-in into a folder: whole or not at all, and by one process at a time."""

import errno
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from xdevice.errors import NotSupportedError
from xdevice.kit.plugins.compilers import command, compiler, hint
from xdevice.kit.plugins.recipe import Recipe, digest

_FULL = {errno.ENOSPC: "No space left on device", errno.EDQUOT: "Disk quota exceeded"}  # as compilers say it
_IN_THE_WAY = errno.EEXIST, errno.EISDIR, errno.ENOTDIR, errno.ENOTEMPTY, errno.ELOOP


def build(recipe: Recipe, folder: Path, begin: Callable[[], None] = lambda: None) -> Path:
    """The library in the folder, compiled unless it is there already; ``begin`` is called before it is compiled."""
    program = compiler()
    if program is None:
        raise NotSupportedError(f"{recipe.purpose} are compiled, and {hint()}")
    made = folder / recipe.folder / recipe.file
    try:
        with _lock(folder / f"{recipe.name}.lock") as is_alone:  # the others find the library when they have waited
            if not is_whole(made):
                begin()
                if is_alone:  # what a process left that was killed
                    for left in folder.glob(f"{recipe.name}-*.unfinished"):
                        shutil.rmtree(left, ignore_errors=True)
                _compile(recipe, program, made)
    except OSError as error:
        raise _failure(recipe, error, folder) from error
    return made


def is_whole(made: Path) -> bool:
    """Whether the file is there and complete; loading a broken one would crash the process."""
    try:
        return _sum_of(made).read_text() == digest(made.read_bytes())
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return False


def _sum_of(made: Path) -> Path:
    return made.parent.with_suffix(".sha256")  # not beside the library: frameworks look at all files there


@contextmanager
def _lock(file: Path) -> Generator[bool]:
    """A context that one process is in at a time; whether the system and its file system can lock files is yielded."""
    # nothing is written, and no link is followed, which another user might have put there
    handle = os.open(file, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
    try:
        try:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX)  # until the file is closed
            locked = True
        except (ImportError, OSError):
            locked = False
        yield locked
    finally:
        os.close(handle)


def _compile(recipe: Recipe, program: list[str], made: Path) -> None:
    missing = [str(folder) for folder in recipe.include if not folder.is_dir()]
    if missing:
        raise NotSupportedError(f"{recipe.purpose} are compiled with C++ headers in {missing[0]}, which is missing")
    made.parent.mkdir(exist_ok=True)
    if made.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(made))
    # where files cannot be locked several may compile: each in a folder of its own, and the last one stays
    scratch = Path(tempfile.mkdtemp(prefix=f"{recipe.name}-", suffix=".unfinished", dir=made.parent.parent))
    try:
        output, total = scratch / recipe.file, scratch / "sum"
        _run(command(program, recipe, output), output, recipe.purpose)
        total.write_text(digest(output.read_bytes()))
        for path, mode in ((made.parent, 0o755), (output, 0o755), (total, 0o644)):  # to be copied for other users
            path.chmod(mode)
        os.replace(output, made)
        os.replace(total, _sum_of(made))
    except OSError as error:  # said while the disk is still full
        if not is_whole(made):  # or another process was quicker, and Windows does not replace what it has loaded
            raise _failure(recipe, error, made.parent.parent) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _run(words: list[str], output: Path, purpose: str) -> None:
    # in English, and with its temporary files where what is left behind is removed
    settings = {"LC_ALL": "C", **dict.fromkeys(("TMPDIR", "TMP", "TEMP"), str(output.parent))}
    done = subprocess.run(
        words, env={**os.environ, **settings}, capture_output=True, text=True, errors="replace", check=False
    )
    if done.returncode == 0 and output.is_file():
        return
    said = [line.strip() for line in (done.stderr + done.stdout).splitlines() if line.strip()]
    for number, words_for_it in _FULL.items():
        if any(words_for_it in line for line in said):
            raise OSError(number, words_for_it)
    reason = next((line for line in said if "error" in line), said[-1] if said else f"exit status {done.returncode}")
    raise NotSupportedError(
        f"{purpose} could not be compiled: {words[0]} says {reason}; install another compiler and set CXX"
    )


def _failure(recipe: Recipe, error: OSError, folder: Path) -> NotSupportedError:
    return NotSupportedError(f"{recipe.purpose} could not be compiled: {_in_words(error, folder)}")


def _in_words(error: OSError, folder: Path) -> str:
    if error.errno == errno.ENOSPC:
        return f"the disk of {folder} {_what_is_full(folder)}; delete something, or set XDG_CACHE_HOME to another disk"
    if error.errno == errno.EDQUOT:
        return f"your quota on the disk of {folder} is used up; delete something, or set XDG_CACHE_HOME to another disk"
    if error.errno in _IN_THE_WAY:
        what = "link" if error.errno == errno.ELOOP else "folder" if os.path.isdir(error.filename) else "file"
        return f"{error.filename} is a {what}, and stands where a plug-in or its folder belongs; delete it"
    return f"{error.filename or folder}: {error.strerror}"


def _what_is_full(folder: Path) -> str:
    state = os.statvfs(folder) if hasattr(os, "statvfs") else None
    return "has no inodes left" if state and state.f_files and not state.f_favail else "is full"
