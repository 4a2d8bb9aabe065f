"""A hook of MkDocs: each lesson is a page as ``xdevice chapter --html`` writes it, of its recorded outputs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File

from xdevice.tools.course.compare import rows_of
from xdevice.tools.course.page import page
from xdevice.tools.course.read import read
from xdevice.tools.course.record import read_record, record_path, runs_of

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

LESSONS = Path(__file__).parents[1] / "examples" / "lessons"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """MkDocs calls it with all files of the site."""
    for path in sorted(LESSONS.glob("*.md")):
        chapter = read(path)
        runs = runs_of(read_record(record_path(path)), chapter)
        html = page(chapter, runs, rows_of(runs), "on 2 virtual GPUs, which the CPU computes")
        files.append(File.generated(config, f"lessons/{path.stem}.html", content=html))
    return files
