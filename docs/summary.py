"""A hook of MkDocs: the reference begins with a line for each public name, which is the first of its docstring.

The reference is read from one folder, to which its packages are copied as they are installed:
griffe reads all of it.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import griffe
from mkdocs.plugins import event_priority

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mkdocs.config.defaults import MkDocsConfig

ROOT = Path(__file__).parents[1]
PACKAGES = {
    "xdevice": "xdevice",
    "backends/kit": "xdevice/backends/kit",
    "testing": "xdevice/testing",
}
PLACE = "<!-- a line for each name of this page -->"


@event_priority(100)  # before mkdocstrings reads it
def on_config(config: MkDocsConfig) -> None:
    """MkDocs calls it before it reads a page."""
    handlers = config.plugins["mkdocstrings"].config["handlers"]
    handlers["python"] = {**handlers["python"], "paths": [str(installed())]}


def on_post_build(**_: Any) -> None:
    """MkDocs calls it when the site is built."""
    shutil.rmtree(installed())
    installed.cache_clear()


@cache
def installed() -> Path:
    """A temporary folder with the packages in their places."""
    folder = Path(tempfile.mkdtemp())
    for source, place in PACKAGES.items():
        shutil.copytree(ROOT / source, folder / place, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "backends/__init__.py", folder / "xdevice/backends")
    return folder


def on_page_markdown(markdown: str, **_: Any) -> str:
    """MkDocs calls it with the text of each page."""
    return markdown.replace(PLACE, "\n".join(tables(markdown))) if PLACE in markdown else markdown


def tables(page: str) -> Iterator[str]:
    """For each section of the page, a table with a row for each name that it documents."""
    for section in page.split("\n## ")[1:]:
        yield f"\n**{section.partition(chr(10))[0]}**\n\n| | |\n| --- | --- |"
        for name in re.findall(r"^::: xdevice\.(\S+)", section, re.MULTILINE):
            yield from rows(name)


def rows(name: str) -> Iterator[str]:
    found = package()[name]
    members = (found.exports or ()) if found.is_module else ()
    for part in [f"{name}.{member}" for member in members] or [name]:
        doc = package()[part].docstring
        line = doc.value.partition("\n")[0].replace("``", "`").replace("|", "\\|") if doc else ""
        yield f"| [`{part}`][xdevice.{part}] | {line} |"


@cache
def package() -> Any:
    return griffe.load(
        "xdevice",
        search_paths=[str(installed())],
        try_relative_path=False,
        resolve_aliases=True,
    )
