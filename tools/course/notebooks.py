"""The cells of a Jupyter notebook."""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path
from typing import Any

import nbformat

from xdevice.errors import ArgumentError
from xdevice.tools.course.chapters import Source

_nbformat: Any = nbformat  # it has no types for its functions

# Kernels whose notebooks name no language, until they are saved with the kernel running.
_LANGUAGES = (
    (re.compile(r"ir\d*$"), "R"),
    (re.compile(r"julia"), "Julia"),
    (re.compile(r"bash$"), "Bash"),
    (re.compile(r"xcpp"), "C++"),
    (re.compile(r"\.net-csharp$"), "C#"),
)
_PYTHON = re.compile(r"(?:i?python)[\d.]*$", re.IGNORECASE)


def cells_in_notebook(text: str, path: Path) -> list[Source]:
    """The cells of code in the order of the notebook, each under its last heading."""
    notebook = _parsed(text, path)
    language = _language(notebook.metadata)
    if not _PYTHON.match(language):
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
        notebook = json.loads(text)
    except ValueError as error:
        raise ArgumentError(f"{str(path)!r} is not a Jupyter notebook: it is not JSON") from error
    if not _has_cells(notebook):
        reason = "it has no list of cells"
        raise ArgumentError(f"{str(path)!r} is not a Jupyter notebook: {reason}")
    _add_what_is_missing(notebook)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a notebook without ids of cells can be run
            return _nbformat.reads(json.dumps(notebook), as_version=4)
    except (ValueError, AttributeError, TypeError, _nbformat.ValidationError) as error:
        reason = str(error).partition("\n")[0]
        raise ArgumentError(f"{str(path)!r} is not a Jupyter notebook ({reason})") from error


def _has_cells(notebook: Any) -> bool:
    """Whether this is a notebook's JSON; before the format 4, cells are in worksheets."""
    if not isinstance(notebook, dict):
        return False
    cells = notebook.get("cells", notebook.get("worksheets"))
    return isinstance(cells, list) and all(isinstance(cell, dict) for cell in cells)


def _add_what_is_missing(notebook: dict[str, Any]) -> None:
    """Add the parts that programs that write notebooks leave out, and that no cell needs to run."""
    if "cells" not in notebook:
        return
    notebook.setdefault("nbformat", 4)
    notebook.setdefault("nbformat_minor", 4)
    notebook["metadata"] = notebook.get("metadata") or {}
    for cell in notebook["cells"]:
        cell["metadata"] = cell.get("metadata") or {}
        cell.setdefault("source", "")
        if cell.get("cell_type") == "code":
            cell["outputs"] = []  # what it printed elsewhere is not used
            cell.setdefault("execution_count", None)


def _language(metadata: Any) -> str:
    """The language of the cells; kernels say it in two places, and some in one."""
    kernel = metadata.get("kernelspec") or {}
    language = metadata.get("language_info") or {}
    told = kernel.get("language") or language.get("name")
    if told:
        return str(told)
    name = str(kernel.get("name") or "")
    return next((language for known, language in _LANGUAGES if known.match(name)), "python")
