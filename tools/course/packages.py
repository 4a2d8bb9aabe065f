"""The packages of a chapter's own checkout."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from xdevice.framework.adapters import registered
from xdevice.tools.course.chapters import Cell, imported_by


def checkout_folders(chapter: Path, cells: Iterable[Cell]) -> list[Path]:
    """The folders above the chapter that have a package that it imports, such as ``d2l``.

    They are searched up to the root of the checkout. A package of the checkout
    comes before an installed one: the chapter was written for it.
    """
    names = _packages(cells) - set(registered()) - sys.stdlib_module_names
    folders: list[Path] = []
    for folder in _folders_above(chapter):
        if any((folder / name / "__init__.py").is_file() for name in names):
            folders.append(folder)
    return folders


def _packages(cells: Iterable[Cell]) -> set[str]:
    return {name for cell in cells for name in imported_by(cell.code)}


def _folders_above(chapter: Path) -> list[Path]:
    """The chapter's folder and those above it, up to the one with ``.git``, five at most."""
    folders = list(chapter.resolve().parents)[:5]
    for number, folder in enumerate(folders, 1):
        if (folder / ".git").exists():
            return folders[:number]
    return folders[:2]
