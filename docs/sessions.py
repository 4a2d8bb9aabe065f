"""A hook of MkDocs: a block with a session of Python is highlighted as one, with its prompts and what is printed."""

from __future__ import annotations

import re
from typing import Any


def on_page_markdown(markdown: str, **_: Any) -> str:
    """MkDocs calls it with the text of each page."""
    return re.sub(r"^```python\n(?=>>> )", "```pycon\n", markdown, flags=re.MULTILINE)
