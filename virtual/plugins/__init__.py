"""Plug-ins: shared libraries that are found where they were put, or compiled once and kept.

A library that is loaded can do whatever the user can, so no folder counts in which another user could put one.
"""

import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from xdevice.errors import NotSupportedError
from xdevice.virtual.plugins.building import (
    INSTALL,
    Recipe,
    build,
    compiler,
    fitting,
    hint,
    is_refused,
    is_whole,
    program,
)

__all__ = [
    "INSTALL",
    "NotCompiledError",
    "Recipe",
    "build",
    "compiler",
    "find",
    "fitting",
    "library",
    "only_find",
    "program",
]

ENV = "XDEVICE_PLUGINS"
GROUP = "xdevice.plugins"  # the entry points of distributions that carry plug-ins; the value is the package with them

_compiles = True


class NotCompiledError(NotSupportedError):
    """A plug-in is missing that this machine can compile, after `only_find`."""


def only_find() -> None:
    """Compile nothing from now on in this process: `library` raises `NotCompiledError` instead."""
    global _compiles
    _compiles = False


def find(recipe: Recipe, refused: list[str] | None = None) -> Path | None:
    """The library, if a `readable` folder has one that fits; why another is not used is added to ``refused``."""
    for place in readable():
        made = place / recipe.folder / recipe.file
        try:
            reason = unsafe(made)
            if reason is None and is_whole(made):
                return made
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            reason = f"{place} cannot be read ({error.strerror})"
        if reason is not None and refused is not None:
            refused.append(reason)
    return None


def library(recipe: Recipe) -> Path:
    """The library: the one that `find` finds, else compiled into the user's cache folder, which stderr says."""
    refused: list[str] = []
    found = find(recipe, refused)
    if found is None and recipe.bare and compiler() is None:
        found = find(recipe.bare, refused)
    if found is not None:
        return found
    recipe = fitting(recipe)
    refused += [f"{place} in {ENV} has none that fits" for place in named()]
    if program(recipe) is None:
        raise _not_compiled(recipe, hint(recipe), refused)
    if not _compiles:
        raise NotCompiledError(
            f"{recipe.purpose} are compiled at first use; xdevice virtual build compiles them now"
        )
    place = writable(recipe, refused)
    less = f", {recipe.lacks}" if recipe.lacks else ""
    said = f"compiling {recipe.purpose}, once{less}{_listed(refused)}"
    return build(recipe, place, lambda: print(said, file=sys.stderr, flush=True))


def writable(recipe: Recipe, refused: list[str]) -> Path:
    """The folder of the user that plug-ins are compiled into; why another is not used is added to ``refused``."""
    for place in own():
        reason = prepare(place)
        if reason is None:
            return place
        refused.append(reason)
    reason = "no folder can be written; set XDG_CACHE_HOME to a folder of your own"
    raise _not_compiled(recipe, reason, refused)


def _not_compiled(recipe: Recipe, reason: str, refused: list[str]) -> NotSupportedError:
    filled = f"name a folder that xdevice virtual build --to FOLDER has filled in {ENV}{_listed(refused)}"
    return NotSupportedError(
        f"{recipe.purpose} are compiled when they are first used, and {reason}, or {filled}"
    )


def _listed(refused: list[str]) -> str:
    return "".join(f"; {each}" for each in dict.fromkeys(refused))


def readable() -> Iterator[Path]:
    """The folders that plug-ins are read from; none is looked for before it is needed."""
    yield from named()
    if not is_refused():
        yield from own()
        yield from installed()


def named() -> list[Path]:
    """The folders in ``XDEVICE_PLUGINS``, separated as in ``PATH``."""
    return [
        Path(folder).absolute() for folder in os.environ.get(ENV, "").split(os.pathsep) if folder
    ]


def installed() -> Iterator[Path]:
    """The folders of the distributions that carry plug-ins; none is imported."""
    from importlib.metadata import entry_points  # 20 ms: only where nothing was found before
    from importlib.util import find_spec

    for entry in entry_points(group=GROUP):
        try:
            spec = find_spec(entry.value)
        except ImportError:  # the rest of a distribution that was removed by hand
            continue
        yield from map(Path, (spec.submodule_search_locations if spec else None) or ())


def own() -> list[Path]:
    """The user's cache folder, if there is a home, then the user's folder among the temporary ones."""
    home = os.path.expanduser(
        "~"
    )  # "~" where there is neither HOME nor an entry in the system's list of users
    named = [os.environ.get("XDG_CACHE_HOME", ""), os.path.join(home, ".cache")]
    cache = [Path(folder, "xdevice") for folder in named if os.path.isabs(folder)][:1]
    user = os.getuid() if os.name != "nt" else os.environ.get("USERNAME", "user")
    try:
        temporary = [Path(tempfile.gettempdir(), f"xdevice-{user}")]
    except FileNotFoundError:  # no folder for temporary files can be written
        temporary = []
    return [*cache, *temporary]


def prepare(folder: Path) -> str | None:
    """Make the folder if it is missing, for this user alone; why it cannot be written is returned."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        return f"{folder} cannot be made ({error.strerror})"
    return unsafe(folder) or (
        None if os.access(folder, os.W_OK | os.X_OK) else f"{folder} cannot be written"
    )


def unsafe(path: Path, *, inside: bool = False) -> str | None:
    """Why another user could change what is at the path, if one could: who owns it, and each folder and link above.

    ``inside`` is for a folder of which only what it contains matters. A group of the owner's number is the owner's.
    """
    if os.name == "nt":
        return None  # folders there have lists of who may write, and a user's profile is the user's own
    trusted = {os.getuid(), 0, os.stat("/").st_uid}  # in a user namespace root has another number
    for each in (path, *path.parents):
        found, above = os.lstat(each), inside or each != path
        if found.st_uid not in trusted:
            return f"{each} belongs to another user ({found.st_uid})"
        if stat.S_ISLNK(found.st_mode):
            target = Path(each.parent, os.readlink(each))
            return unsafe(each.parent, inside=True) or unsafe(target, inside=above)
        shared = found.st_mode & (
            stat.S_IWOTH if found.st_gid in (0, found.st_uid) else stat.S_IWOTH | stat.S_IWGRP
        )
        if shared and not (
            above and found.st_mode & stat.S_ISVTX
        ):  # there only owners rename and remove
            return f"{each} can be written by other users (mode {stat.S_IMODE(found.st_mode):o})"
    return None
