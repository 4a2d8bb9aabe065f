"""A hook of MkDocs: each line of a block of code carries its indentation, and a line that is wrapped keeps it.

A block with a session of Python is highlighted as one, with its prompts and what is printed.
"""

from __future__ import annotations

import re
from html import unescape
from typing import Any

LINE = re.compile(r'<span id="(__span-\d+-\d+)">(.*?\n)(?=</span>)', re.DOTALL)
TAG = re.compile(r"<[^>]+>")
HANGING = 2  # letters by which the rest of a wrapped line is indented more than its beginning


def on_page_markdown(markdown: str, **_: Any) -> str:
    """MkDocs calls it with the text of each page."""
    return re.sub(r"^```python\n(?=>>> )", "```pycon\n", markdown, flags=re.MULTILINE)


def on_page_content(html: str, **_: Any) -> str:
    """MkDocs calls it with the HTML of each page."""
    return LINE.sub(indented, html)


def indented(line: re.Match[str]) -> str:
    text = unescape(TAG.sub("", line[2]))
    blanks = len(text) - len(text.lstrip(" "))
    return f'<span id="{line[1]}" class="line" style="--indent:{blanks + HANGING}ch">{line[2]}'
