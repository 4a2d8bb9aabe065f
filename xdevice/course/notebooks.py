"""The cells of a Jupyter notebook."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nbformat

from xdevice.course.chapters import Source
from xdevice.errors import ArgumentError

_nbformat: Any = nbformat  # it has no types for its functions


def cells_in_notebook(text: str, path: Path) -> list[Source]:
    """The cells of code in the order of the notebook, each under its last heading."""
    try:
        notebook = _nbformat.reads(text, as_version=4)
    except (
        _nbformat.reader.NotJSONError,
        _nbformat.ValidationError,
        json.JSONDecodeError,
    ) as error:
        raise ArgumentError(f"{str(path)!r} is not a Jupyter notebook ({error})") from error
    language = notebook.metadata.get("kernelspec", {}).get("language", "python")
    if language != "python":
        raise ArgumentError(f"{str(path)!r} is written in {language}, and only Python can be run")
    sources: list[Source] = []
    heading = ""
    follows_text = False
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            headings = [line for line in cell.source.splitlines() if line.startswith("#")]
            if headings:
                heading = headings[-1].lstrip("#").strip()
            follows_text = True
        elif cell.cell_type == "code" and cell.source.strip():
            tags = tuple(cell.metadata.get("tags", ()))
            sources.append(Source(cell.source, "", "", heading, follows_text, tags))
            follows_text = False
    return sources
