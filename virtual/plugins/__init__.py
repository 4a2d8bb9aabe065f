"""Plug-ins: shared libraries that are found in folders, or compiled once and kept.

A loaded library can do whatever the user can, so a folder is not used if another user can write
there.
"""

import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from xdevice.errors import NotSupportedError
from xdevice.virtual.plugins.building import build, is_complete
from xdevice.virtual.plugins.compilers import (
    INSTALL,
    compiler,
    hint,
    is_refused,
)
from xdevice.virtual.plugins.recipes import Recipe

__all__ = [
    "CURAND",
    "INSTALL",
    "NotCompiledError",
    "Recipe",
    "build",
    "compiler",
    "find",
    "library",
    "only_find",
]

CURAND = Path(__file__).parent.parent / "curand"
"""The folder of headers by which plug-ins draw cuRAND's numbers."""

ENV = "XDEVICE_PLUGINS"
# the entry points of distributions that contain plug-ins; the value is the package with them
GROUP = "xdevice.plugins"

_compiles = True


class NotCompiledError(NotSupportedError):
    """A plug-in is missing that this machine can compile, after `only_find`."""


def only_find() -> None:
    """Compile nothing from now on in this process: `library` raises `NotCompiledError` instead."""
    global _compiles
    _compiles = False


def find(recipe: Recipe, refusals: list[str] | None = None) -> Path | None:
    """The library, if a `readable` folder has one that fits.

    Reasons against other folders are added to ``refusals``.
    """
    for folder in readable():
        library = folder / recipe.folder / recipe.file
        try:
            reason = unsafe(library)
            if reason is None and is_complete(library):
                return library
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            reason = f"{folder} cannot be read ({error.strerror})"
        if reason is not None and refusals is not None:
            refusals.append(reason)
    return None


def library(recipe: Recipe) -> Path:
    """The path of the library.

    If `find` does not find it, it is compiled into the user's cache folder, with a line on stderr.
    """
    refusals: list[str] = []
    path = find(recipe, refusals)
    if path is not None:
        return path
    refusals += [f"{folder} in {ENV} has none that fits" for folder in named()]
    if compiler() is None:
        raise _not_compiled(recipe, hint(), refusals)
    if not _compiles:
        raise NotCompiledError(
            f"{recipe.purpose} are compiled at first use; xdevice virtual build compiles them now"
        )
    folder = writable(recipe, refusals)

    def compiling(seconds: int) -> None:
        begin = f"compiling {recipe.purpose}, once, in one to three minutes{_listed(refusals)}"
        line = f"still compiling after {seconds} s" if seconds else begin
        print(line, file=sys.stderr, flush=True)

    return build(recipe, folder, compiling)


def writable(recipe: Recipe, refusals: list[str]) -> Path:
    """The user's folder that plug-ins are compiled into.

    Reasons against other folders are added to ``refusals``.
    """
    for folder in users_folders():
        reason = prepare(folder)
        if reason is None:
            return folder
        refusals.append(reason)
    reason = "no folder can be written; set XDG_CACHE_HOME to a folder of your own"
    raise _not_compiled(recipe, reason, refusals)


def _not_compiled(recipe: Recipe, reason: str, refusals: list[str]) -> NotSupportedError:
    cure = f"name a folder that xdevice virtual build --to FOLDER has filled in {ENV}"
    return NotSupportedError(
        f"{recipe.purpose} are compiled when they are first used, and {reason}, "
        f"or {cure}{_listed(refusals)}"
    )


def _listed(refusals: list[str]) -> str:
    return "".join(f"; {refusal}" for refusal in dict.fromkeys(refusals))


def readable() -> Iterator[Path]:
    """The folders that plug-ins are read from, each determined when it is needed."""
    yield from named()
    if not is_refused():
        yield from users_folders()
        yield from installed()


def named() -> list[Path]:
    """The folders in ``XDEVICE_PLUGINS``, separated as in ``PATH``."""
    folders = os.environ.get(ENV, "").split(os.pathsep)
    return [Path(folder).absolute() for folder in folders if folder]


def installed() -> Iterator[Path]:
    """The folders of the distributions that contain plug-ins; none is imported."""
    from importlib.metadata import entry_points  # 20 ms: only if nothing was found before
    from importlib.util import find_spec

    for entry in entry_points(group=GROUP):
        try:
            spec = find_spec(entry.value)
        except ImportError:  # the distribution was removed by hand, and not completely
            continue
        if spec is not None:
            yield from map(Path, spec.submodule_search_locations or ())


def users_folders() -> list[Path]:
    """The user's cache folder, if there is a home, then the user's folder among the temporary ones."""
    folders: list[Path] = []
    # "~" stays if there is neither HOME nor an entry in the system's list of users
    home = os.path.expanduser("~")
    for cache in (os.environ.get("XDG_CACHE_HOME", ""), os.path.join(home, ".cache")):
        if os.path.isabs(cache):
            folders.append(Path(cache, "xdevice"))
            break
    user = os.environ.get("USERNAME", "user") if os.name == "nt" else os.getuid()
    with suppress(FileNotFoundError):  # no folder for temporary files can be written
        folders.append(Path(tempfile.gettempdir(), f"xdevice-{user}"))
    return folders


def prepare(folder: Path) -> str | None:
    """Create the folder if it is missing, for this user only.

    If it cannot be written, the reason is returned.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        return f"{folder} cannot be made ({error.strerror})"
    reason = unsafe(folder)
    if reason is None and not os.access(folder, os.W_OK | os.X_OK):
        reason = f"{folder} cannot be written"
    return reason


def unsafe(path: Path, *, only_its_content: bool = False) -> str | None:
    """Why another user can change the file or folder; ``None`` if no other user can.

    This depends on the owners and the permissions of the path, and of each folder and link above
    it. With ``only_its_content``, the path is a folder, and files that others add to it do not
    matter. A group with the owner's number belongs to the owner.
    """
    if os.name == "nt":
        return None  # permissions are lists, and only the user can write to the user's profile
    # in a user namespace root has another number
    trusted = {os.getuid(), 0, os.stat("/").st_uid}
    for part in (path, *path.parents):
        status = os.lstat(part)
        is_container = only_its_content or part != path
        if status.st_uid not in trusted:
            return f"{part} belongs to another user ({status.st_uid})"
        if stat.S_ISLNK(status.st_mode):
            target = Path(part.parent, os.readlink(part))
            reason = unsafe(part.parent, only_its_content=True)
            return reason or unsafe(target, only_its_content=is_container)
        is_sticky = bool(status.st_mode & stat.S_ISVTX)  # only owners can rename and remove files
        if _can_others_write(status) and not (is_container and is_sticky):
            return f"{part} can be written by other users (mode {stat.S_IMODE(status.st_mode):o})"
    return None


def _can_others_write(status: os.stat_result) -> bool:
    permissions = stat.S_IWOTH
    if status.st_gid not in (0, status.st_uid):
        permissions |= stat.S_IWGRP
    return bool(status.st_mode & permissions)
