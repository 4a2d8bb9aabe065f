"""The working directory of a tab: like the chapter's folder, but what a tab writes is its own.

Tabs run at the same time, and many write files of the same name, such as
``net.params``. A tab's folder has copies of the files of the chapter's folder,
so that what a cell writes changes nothing of the chapter's, and the folder
above it has links to what is beside the chapter's folder.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import NamedTuple

MOST_BYTES = 64 << 20  # that are copied for a tab, the smallest files first
_MOST_ENTRIES = 2000  # of the chapter's folder, of which further folders are links


class _File(NamedTuple):
    size: int
    source: Path
    target: Path


class _Layout:
    """The entries of a folder that are copied, and those that become links."""

    def __init__(self, folder: Path, place: Path) -> None:
        self.folders: list[Path] = []
        self.links: list[_File] = []
        self.files: list[_File] = []
        self._place = place
        self._entries = 0
        level = [(folder, place)]
        while level:  # the upper levels first
            level = [pair for each in level for pair in self._add_level(*each)]
        self._leave_large_files()

    def _add_level(self, folder: Path, place: Path) -> list[tuple[Path, Path]]:
        """Add the entries, and return the folders among them that are to be copied."""
        below: list[tuple[Path, Path]] = []
        for source in _entries(folder):
            target = place / source.name
            self._entries += 1
            mode, size = _mode_and_size(source)
            is_copied = self._entries <= _MOST_ENTRIES and not self._is_left(source)
            if S_ISREG(mode) and is_copied:
                self.files.append(_File(size, source, target))
            elif S_ISDIR(mode) and is_copied and not source.is_symlink():
                self.folders.append(target)
                below.append((source, target))
            else:
                self.links.append(_File(size, source, target))
        return below

    def _is_left(self, source: Path) -> bool:
        """Whether the entry is no content of the chapter's: hidden, or the temporary folder."""
        return source.name.startswith((".", "__pycache__")) or source in self._place.parents

    def _leave_large_files(self) -> None:
        """Let the largest files be links, if there is too much to copy."""
        copied = 0
        for number, file in enumerate(sorted(self.files)):
            copied += file.size
            if copied > MOST_BYTES:
                self.links += sorted(self.files)[number:]
                self.files = sorted(self.files)[:number]
                return

    def make(self) -> None:
        for folder in self.folders:
            folder.mkdir()
        for file in self.files:
            if not _is_copied(file):
                self.links.append(file)
        for file in self.links:
            file.target.symlink_to(file.source)

    def shared(self) -> list[Path]:
        """The content that becomes links."""
        return [file.source for file in self.links if not self._is_left(file.source)]


def lay_out(chapter: Path, scratch: Path) -> Path:
    """Make the tab's working directory in ``scratch``, and return it."""
    folder = chapter.resolve().parent
    working = scratch / (folder.name or "chapter")
    working.mkdir(parents=True)
    _Layout(folder, working).make()
    for entry in _entries(folder.parent):
        link = scratch / entry.name
        if not os.path.lexists(link):
            link.symlink_to(entry)
    return working


def shared_with(chapter: Path) -> list[Path]:
    """What is too large to be copied for each tab, so that cells can change the chapter's own."""
    folder = chapter.resolve().parent
    return _Layout(folder, folder).shared()


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


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:  # it may be entered, and not listed
        return []


def _mode_and_size(path: Path) -> tuple[int, int]:
    """The mode of what the path leads to, and its bytes; zeros if it leads nowhere."""
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_mode, status.st_size


def _is_copied(file: _File) -> bool:
    """Copy the file; not if it cannot be read, or is not there any more."""
    try:
        shutil.copy2(file.source, file.target)
    except OSError:
        file.target.unlink(missing_ok=True)
        return False
    return True
