"""Reading a chapter from its file."""

from __future__ import annotations

from pathlib import Path

from xdevice.course.chapters import Chapter, chapter_of
from xdevice.course.markdown import cells_in_markdown
from xdevice.course.notebooks import cells_in_notebook
from xdevice.errors import ArgumentError


def read(path: Path) -> Chapter:
    """The chapter in a Markdown file (of d2l, MyST or plain) or a Jupyter notebook."""
    if not path.is_file():
        raise ArgumentError(f"{str(path)!r} does not exist; give the path of a chapter")
    text = path.read_text(encoding="utf-8")
    if path.suffix.lower() == ".ipynb":
        sources = cells_in_notebook(text, path)
    else:
        sources = cells_in_markdown(text)
    chapter = chapter_of(path, sources)
    if not chapter.cells:
        raise ArgumentError(f"{str(path)!r} has no cells of Python to run")
    return chapter
