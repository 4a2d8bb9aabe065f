"""A hook of MkDocs: a table that is too wide for a phone is marked, for site.css to show its rows as cards there.

Long words of a table, such as paths, may break after ``/``, ``_`` and the like, and not elsewhere; ``2.37 ± 0.04``
stays on one line.
"""

from __future__ import annotations

import re
from html import escape, unescape
from typing import Any

MOST = 34  # letters side by side on a phone, without the padding of the cells
SHORT = 18  # letters of cells that go beside each other on a card
TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
ROW = re.compile(r"<tr[^>]*>.*?</tr>", re.DOTALL)
CELL = re.compile(r"<t[hd][^>]*>(.*?)</t[hd]>", re.DOTALL)
TAG = re.compile(r"<[^>]+>")
LONG = re.compile(r"(?<![^\s>])[^\s<>]{17,}(?=[^<>]*<)")  # a word between tags


def on_page_content(html: str, **_: Any) -> str:
    """MkDocs calls it with the HTML of each page."""
    return TABLE.sub(lambda table: marked(table[0]), html)


def marked(table: str) -> str:
    """The table, and if it is wide, with its head's words in each cell."""
    heads, *rows = [[words(cell) for cell in CELL.findall(row)] for row in ROW.findall(table)]
    table = LONG.sub(lambda word: re.sub(r"(?<=[/_.=,(])(?=\w)", "<wbr>", word[0]), table)
    table = table.replace(" ± ", "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}")
    if not is_wide([heads, *rows]):
        return table
    named = ROW.sub(lambda row: with_heads(row[0], heads), table)
    short = all(len(cell) <= SHORT for row in rows for cell in row[1:])
    return named.replace("<table>", f'<table data-cards="{"short" if short else "long"}">', 1)


def words(cell: str) -> str:
    return unescape(TAG.sub("", cell)).strip()


def is_wide(rows: list[list[str]]) -> bool:
    """Whether the columns do not fit beside each other: two with words that break, more with all of their text."""
    columns = list(zip(*rows, strict=False))
    breaks = len(columns) <= 2
    return sum(max(widest(cell, breaks) for cell in column) for column in columns) > MOST


def widest(cell: str, breaks: bool) -> int:
    return max(map(len, cell.split()), default=0) if breaks else len(cell)


def with_heads(row: str, heads: list[str]) -> str:
    names = iter(heads)
    return re.sub("<td", lambda _: f'<td data-head="{escape(next(names))}"', row)
