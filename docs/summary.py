"""A hook of MkDocs: the reference begins with a line for each public name, which is the first of its docstring."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import griffe

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mkdocs.structure.pages import Page

PLACE = "<!-- a line for each name -->"


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """MkDocs calls it with the text of each page."""
    return markdown.replace(PLACE, "\n".join(table(markdown))) if PLACE in markdown else markdown


def table(markdown: str) -> Iterator[str]:
    """The rows, under the headings that the page has."""
    package = griffe.load("xdevice", search_paths=["."], resolve_aliases=True)
    yield "| | |\n| --- | --- |"
    for heading, section in re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", markdown, re.MULTILINE | re.DOTALL):
        yield f"| **{heading}** | |"
        for name in re.findall(r"^::: xdevice\.(\S+)", section, re.MULTILINE):
            found = package[name]
            members = (found.exports or ()) if found.is_module else ()
            for part in [f"{name}.{member}" for member in members] or [name]:
                doc = package[part].docstring
                line = doc.value.partition("\n")[0].replace("``", "`").replace("|", "\\|") if doc else ""
                yield f"| [`{part}`][xdevice.{part}] | {line} |"
