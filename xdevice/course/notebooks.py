"""The cells of a Jupyter notebook."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import nbformat

from xdevice.course.chapters import Source
from xdevice.errors import ArgumentError

_nbformat: Any = nbformat  # it has no types for its functions


def cells_in_notebook(text: str, path: Path) -> list[Source]:
    """The cells of code in the order of the notebook, each under its last heading."""
    notebook = _parsed(text, path)
    language = _language(notebook.metadata)
    if language.lower() != "python":
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
            tags = tuple(cell.metadata.get("tags") or ())
            sources.append(Source(cell.source, "", "", heading, follows_text, tags))
            follows_text = False
    return sources


def _parsed(text: str, path: Path) -> Any:
    """The notebook, in the format 4."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a notebook without ids of cells can be run
            return _nbformat.reads(text, as_version=4)
    except (ValueError, AttributeError, TypeError, _nbformat.ValidationError) as error:
        reason = str(error).partition("\n")[0]
        raise ArgumentError(f"{str(path)!r} is not a Jupyter notebook ({reason})") from error


def _language(metadata: Any) -> str:
    """The language of the cells; kernels say it in two places, and some in one."""
    kernel = metadata.get("kernelspec") or {}
    language = metadata.get("language_info") or {}
    return str(kernel.get("language") or language.get("name") or "python")
