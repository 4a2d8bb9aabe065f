"""Reading a chapter from its file."""

from __future__ import annotations

from pathlib import Path

from xdevice.errors import ArgumentError
from xdevice.tools.course.chapters import Chapter, chapter_of
from xdevice.tools.course.markdown import cells_in_markdown
from xdevice.tools.course.notebooks import cells_in_notebook


def read(path: Path) -> Chapter:
    """The chapter in a Markdown file (of d2l, MyST or plain) or a Jupyter notebook."""
    text = _text_of(path)
    if path.suffix.lower() == ".ipynb":
        sources = cells_in_notebook(text, path)
    else:
        sources = cells_in_markdown(text)
    chapter = chapter_of(path, sources)
    if not chapter.cells:
        raise ArgumentError(f"{str(path)!r} has no cells of Python to run")
    return chapter


def _text_of(path: Path) -> str:
    """The text of the file, without a byte order mark."""
    if path.is_dir():
        raise ArgumentError(f"{str(path)!r} is a folder; give the path of a chapter in it")
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        reason = "does not exist; give the path of a chapter"
        raise ArgumentError(f"{str(path)!r} {reason}") from error
    except UnicodeDecodeError as error:
        reason = f"is not UTF-8 (byte {error.start} cannot be read); save it as UTF-8"
        raise ArgumentError(f"{str(path)!r} {reason}") from error
    except OSError as error:
        raise ArgumentError(f"{str(path)!r} cannot be read: {error.strerror}") from error
