"""Compiling a plug-in into a folder: completely or not at all, by one process at a time."""

import errno
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeAlias

from xdevice.errors import NotSupportedError
from xdevice.virtual.plugins.compilers import command, compiler, hint
from xdevice.virtual.plugins.recipes import Recipe, digest

# what compilers print when the disk is full
_DISK_FULL = {
    errno.ENOSPC: "No space left on device",
    errno.EDQUOT: "Disk quota exceeded",
}
_PATH_IS_TAKEN = errno.EEXIST, errno.EISDIR, errno.ENOTDIR, errno.ENOTEMPTY, errno.ELOOP
_TEMPORARY_FOLDERS = "TMPDIR", "TMP", "TEMP", "ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"

_INTERVAL = 15  # in seconds

Compiling: TypeAlias = Callable[[int], None]
"""Called before the library is compiled, with 0, and every 15 seconds while it is, with the seconds so far."""


def build(recipe: Recipe, folder: Path, compiling: Compiling = lambda seconds: None) -> Path:
    """The library in the folder, compiled unless it is there."""
    compiler_command = compiler()
    if compiler_command is None:
        raise NotSupportedError(f"{recipe.purpose} are compiled, and {hint()}")
    library = folder / recipe.folder / recipe.file
    try:
        # processes that wait for the lock find the library afterwards
        with _lock(folder / f"{recipe.name}.lock") as is_locked:
            if not is_complete(library):
                compiling(0)
                if is_locked:
                    _remove_unfinished(recipe, folder)
                _compile(recipe, compiler_command, library, compiling)
    except OSError as error:
        raise _failure(recipe, error, folder) from error
    return library


def _remove_unfinished(recipe: Recipe, folder: Path) -> None:
    """Remove what a process left that was killed."""
    for path in folder.glob(f"{recipe.name}-*.unfinished"):
        shutil.rmtree(path, ignore_errors=True)


def is_complete(library: Path) -> bool:
    """Whether the file is there and complete; loading a broken one would crash the process."""
    try:
        return _digest_file(library).read_text() == digest(library.read_bytes())
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return False


def _digest_file(library: Path) -> Path:
    # not beside the library: frameworks load every file of its folder
    return library.parent.with_suffix(".sha256")


@contextmanager
def _lock(file: Path) -> Generator[bool]:
    """A context that one process is in at a time; yields whether the file system can lock files."""
    # nothing is written, and no link is followed, which another user might have put there
    handle = os.open(file, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
    try:
        is_locked = False
        with suppress(ImportError, OSError):
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX)  # until the file is closed
            is_locked = True
        yield is_locked
    finally:
        os.close(handle)


def _compile(
    recipe: Recipe, compiler_command: list[str], library: Path, compiling: Compiling
) -> None:
    missing = [str(folder) for folder in recipe.include if not folder.is_dir()]
    if missing:
        raise NotSupportedError(
            f"{recipe.purpose} are compiled with C++ headers in {missing[0]}, which is missing"
        )
    library.parent.mkdir(exist_ok=True)
    if library.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(library))
    # Several processes may compile if files cannot be locked. Each has a folder of its own.
    folder = library.parent.parent
    scratch = Path(tempfile.mkdtemp(prefix=f"{recipe.name}-", suffix=".unfinished", dir=folder))
    try:
        output = scratch / recipe.file
        output_digest = scratch / "digest"
        _run(command(compiler_command, recipe, output), output, recipe.purpose, compiling)
        output_digest.write_text(digest(output.read_bytes()))
        for path in (library.parent, output, output_digest):
            path.chmod(0o644 if path == output_digest else 0o755)  # other users may copy them
        os.replace(output, library)
        os.replace(output_digest, _digest_file(library))
    except OSError as error:
        # Another process may have been quicker: Windows does not replace a library that is loaded.
        # The error is made here, while the disk is still full.
        if not is_complete(library):
            raise _failure(recipe, error, folder) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _run(words: list[str], output: Path, purpose: str, compiling: Compiling) -> None:
    # in English, and with its temporary files in the folder that is removed afterwards
    temporary = dict.fromkeys(_TEMPORARY_FOLDERS, str(output.parent))
    env = {**os.environ, "LC_ALL": "C", **temporary}
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        words, env=env, stdout=pipe, stderr=pipe, text=True, errors="replace"
    )
    with process:
        try:
            text = _text(process, compiling)
        except BaseException:  # as `subprocess.run` does
            process.kill()
            raise
    if process.returncode == 0 and output.is_file():
        return
    for number, message in _DISK_FULL.items():
        if message in text:
            raise OSError(number, message)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    last_line = lines[-1] if lines else f"exit status {process.returncode}"
    reason = next((line for line in lines if "error" in line), last_line)
    cure = "install another compiler and set CXX"
    raise NotSupportedError(f"{purpose} could not be compiled: {words[0]} says {reason}; {cure}")


def _text(process: subprocess.Popen[str], compiling: Compiling) -> str:
    """What the process prints until it ends."""
    seconds = 0
    while True:
        try:
            output, errors = process.communicate(timeout=_INTERVAL)
            return errors + output
        except subprocess.TimeoutExpired:
            seconds += _INTERVAL
            compiling(seconds)


def _failure(recipe: Recipe, error: OSError, folder: Path) -> NotSupportedError:
    if error.errno in _DISK_FULL:
        cure = "delete something, or set XDG_CACHE_HOME to another disk"
        reason = f"{_full_disk(error, folder)}; {cure}"
    elif error.errno in _PATH_IS_TAKEN:
        place = "stands where a plug-in or its folder belongs"
        reason = f"{error.filename} is a {_file_type(error)}, and {place}; delete it"
    else:
        reason = f"{error.filename or folder}: {error.strerror}"
    return NotSupportedError(f"{recipe.purpose} could not be compiled: {reason}")


def _full_disk(error: OSError, folder: Path) -> str:
    if error.errno == errno.EDQUOT:
        return f"your quota on the disk of {folder} is used up"
    state = os.statvfs(folder) if hasattr(os, "statvfs") else None
    if state and state.f_files and not state.f_favail:
        return f"the disk of {folder} has no inodes left"
    return f"the disk of {folder} is full"


def _file_type(error: OSError) -> str:
    if error.errno == errno.ELOOP:
        return "link"
    return "folder" if os.path.isdir(error.filename) else "file"
