"""Text without control characters, for terminals and logs.

File names and source lines may have some.
"""

import json
import re

_CONTROL_CHARACTERS = re.compile(
    "["
    "\x00-\x1f\x7f-\x9f"  # control characters
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # the writing direction
    "\u2028\u2029"  # line ends
    "\ud800-\udfff"  # halves of surrogate pairs
    "]"
)


def escaped(text: str) -> str:
    """The text with control characters as in Python's strings: ``\\x1b``."""
    return _CONTROL_CHARACTERS.sub(_python_escape, text)


def as_json(value: object) -> str:
    """Indented JSON of the same value, with control characters escaped."""
    # `dumps` escapes characters below a space, but its line ends are some, too
    lines = json.dumps(value, indent=2, ensure_ascii=False).split("\n")
    return "\n".join(_CONTROL_CHARACTERS.sub(_json_escape, line) for line in lines)


def _python_escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")


def _json_escape(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"
