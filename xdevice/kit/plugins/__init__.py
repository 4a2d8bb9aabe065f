"""Plug-ins: shared libraries that are found where they were put, or compiled once and kept."""

import sys
from collections.abc import Iterator
from pathlib import Path

from xdevice.errors import NotSupportedError
from xdevice.kit.plugins import places
from xdevice.kit.plugins.building import Recipe, build, compiler, hint, is_refused, is_whole

__all__ = ["NotCompiledError", "Recipe", "build", "compiler", "find", "library", "only_find"]

_compiles = True


class NotCompiledError(NotSupportedError):
    """A plug-in is missing that this machine can compile, after `only_find`."""


def only_find() -> None:
    """Compile nothing from now on in this process: `library` raises `NotCompiledError` instead."""
    global _compiles
    _compiles = False


def find(recipe: Recipe, refused: list[str] | None = None) -> Path | None:
    """The library, if there is one that fits: in ``XDEVICE_PLUGINS``, in the user's folders or in a distribution.

    Why another is not used is added to ``refused``.
    """
    for place in _readable():
        made = place / recipe.folder / recipe.file
        try:
            reason = places.unsafe(made)
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
    if found is not None:
        return found
    refused += [f"{place} in {places.ENV} has none that fits" for place in places.named()]
    if compiler() is None:
        raise NotSupportedError(_in_words(recipe, hint(), refused))
    if not _compiles:
        raise NotCompiledError(f"{recipe.purpose} are compiled at first use; xdevice virtual build compiles them now")
    place = writable(recipe, refused)
    said = f"compiling {recipe.purpose}, once{_listed(refused)}"
    return build(recipe, place, lambda: print(said, file=sys.stderr, flush=True))


def writable(recipe: Recipe, refused: list[str]) -> Path:
    """The folder of the user that plug-ins are compiled into; why another is not used is added to ``refused``."""
    for place in places.own():
        reason = places.prepare(place)
        if reason is None:
            return place
        refused.append(reason)
    reason = "no folder can be written; set XDG_CACHE_HOME to a folder of your own"
    raise NotSupportedError(_in_words(recipe, reason, refused))


def _readable() -> Iterator[Path]:
    yield from places.named()
    if not is_refused():
        yield from places.own()
        yield from places.installed()


def _in_words(recipe: Recipe, reason: str, refused: list[str]) -> str:
    return (
        f"{recipe.purpose} are compiled when they are first used, and {reason}, or name a folder that "
        f"xdevice virtual build --to FOLDER has filled in {places.ENV}{_listed(refused)}"
    )


def _listed(refused: list[str]) -> str:
    return "".join(f"; {each}" for each in dict.fromkeys(refused))
