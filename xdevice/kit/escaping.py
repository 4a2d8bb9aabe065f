"""Text that a terminal, a log or a program shows: file names and lines of source may have characters that act there."""

import json
import re
from typing import Any

# control characters; those that turn the direction of writing; ends of lines; halves of surrogate pairs
_ACTING = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def escaped(text: str) -> str:
    """The text with each such character as Python writes it in a string: ``\\x1b``, ``\\n``."""
    return _ACTING.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def as_json(value: Any) -> str:
    """Indented JSON, in which each such character is an escape of JSON's: it reads as the same value."""
    text = json.dumps(value, indent=2, ensure_ascii=False)  # which has escaped those below a space
    return "\n".join(
        _ACTING.sub(lambda found: f"\\u{ord(found[0]):04x}", line) for line in text.split("\n")
    )
