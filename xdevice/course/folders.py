"""The working directory of a tab: like the chapter's folder, but what a tab writes is its own.

Tabs run at the same time, and many write files of the same name, such as
``net.params``. A tab's folder has links to the files of the chapter's folder,
and the folder above it to those beside the chapter's folder.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def lay_out(chapter: Path, scratch: Path) -> Path:
    """Make the tab's working directory in ``scratch``, and return it."""
    folder = chapter.resolve().parent
    working = scratch / (folder.name or "chapter")
    working.mkdir(parents=True)
    _link_entries(folder, working)
    _link_entries(folder.parent, scratch)
    return working


def keep_new_folders(chapter: Path, scratch: Path) -> None:
    """Move new folders, such as ``../data``, to where the chapter's folder is.

    They often contain downloads, which the next run needs again.
    """
    folder = chapter.resolve().parent
    for entry in scratch.iterdir():
        target = folder.parent / entry.name
        is_new = entry.is_dir() and not entry.is_symlink() and not os.path.lexists(target)
        if is_new and os.access(folder.parent, os.W_OK):
            shutil.move(entry, target)


def _link_entries(folder: Path, place: Path) -> None:
    try:
        entries = list(folder.iterdir())
    except OSError:  # it may be entered, and not listed
        return
    for entry in entries:
        link = place / entry.name
        if not os.path.lexists(link):
            link.symlink_to(entry)
