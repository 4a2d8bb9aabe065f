"""Texts for all commands: safe to print, and how a child has ended. They need neither rich nor psutil."""

from __future__ import annotations

import json
import re
import signal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xdevice.tools.launcher.children import Child

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
# Visible signs for control characters: Unicode has pictures of those below 32
# and of 127.
_CONTROL_PICTURES = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n"}
_CONTROL_PICTURES[127] = 0x2421
_CONTROL_PICTURES |= dict.fromkeys(range(128, 160), 0xFFFD)


def write_json(value: Any) -> None:
    print(json.dumps(value, indent=2))


def counted(number: int, noun: str) -> str:
    """The number with its noun: ``1 line``, ``2 lines``."""
    if number == 1:
        return f"1 {noun}"
    return f"{number} {noun}s"


def printable(text: str) -> str:
    """The text as a terminal shows it in the end, with signs for control characters."""
    text = _ESCAPES.sub("", text).replace("\r\n", "\n")
    lines = (line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return "\n".join(lines).translate(_CONTROL_PICTURES)


def ending(child: Child) -> str:
    """The child's state in words."""
    if child.status == "failed":
        return exit_text(child.exit_status)
    if child.status == "flooded":
        return "stopped: too much output"
    return child.status


def exit_text(status: int | None) -> str:
    """An exit status in words: ``exit 1``, ``killed by SIGSEGV``."""
    if status is None:
        return "never ran"
    if status < 0:
        return f"killed by {signal_name(status)}"
    return f"exit {status}"


def signal_name(status: int | None) -> str | None:
    """The signal behind a negative exit status."""
    if status is None or status >= 0:
        return None
    try:
        return signal.Signals(-status).name
    except ValueError:  # a real-time signal
        return f"signal {-status}"
