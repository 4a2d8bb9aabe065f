"""Text without control characters, for terminals and logs: file names and source lines have some."""

import json
import re
from typing import Any

# control characters, changes of the writing direction, line ends, halves of
# surrogate pairs
_CONTROL = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def escaped(text: str) -> str:
    """The text with each such character as Python writes it in a string: ``\\x1b``, ``\\n``."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


def as_json(value: Any) -> str:
    """Indented JSON, in which each such character is a JSON escape, so that the value is the same."""
    text = json.dumps(value, indent=2, ensure_ascii=False)  # escapes characters below a space
    return "\n".join(
        _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", line) for line in text.split("\n")
    )
