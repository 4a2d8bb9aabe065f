"""A hook of MkDocs: the reference begins with a line for each public name, which is the first of its docstring."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import griffe

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mkdocs.structure.pages import Page

PLACE = re.compile(r"<!-- a line for each name of (\S+) -->")


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """MkDocs calls it with the text of each page."""
    folder = Path(str(page.file.abs_src_path)).parent
    return PLACE.sub(
        lambda place: "\n".join(table((folder / place[1]).read_text(encoding="utf-8"))), markdown
    )


def table(page: str) -> Iterator[str]:
    """A row for each name that the page documents."""
    yield "| | |\n| --- | --- |"
    for name in re.findall(r"^::: xdevice\.(\S+)", page, re.MULTILINE):
        found = package()[name]
        members = (found.exports or ()) if found.is_module else ()
        for part in [f"{name}.{member}" for member in members] or [name]:
            doc = package()[part].docstring
            line = (
                doc.value.partition("\n")[0].replace("``", "`").replace("|", "\\|") if doc else ""
            )
            yield f"| [`{part}`][xdevice.{part}] | {line} |"


@cache
def package() -> Any:
    return griffe.load("xdevice", search_paths=["."], resolve_aliases=True)
