"""The values of options: what argparse calls with the text that was typed."""

from __future__ import annotations

import argparse
from pathlib import Path


def names(text: str) -> list[str]:
    """The names asked for, each once; none means all."""
    return [] if text == "all" else list(dict.fromkeys(name.strip() for name in text.split(",")))


def positive(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return number


def count(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 0 or more")
    return int(text)


def first_port(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() else 0
    if not 0 < number < 2**16:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port from 1 to 65535")
    return number


def seconds(text: str) -> float:
    number = _number(text)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return number


def scale(text: str) -> float:
    number = _number(text)
    if not 0 < number <= 10:
        raise argparse.ArgumentTypeError(f"{text!r} is not a scale above 0 and up to 10; 1 is the lessons' own size")
    return number


def file(text: str) -> Path:
    from pathlib import Path  # half of what `xdevice --version` would take

    return Path(text)


def tolerance(text: str) -> float:
    number = _number(text)
    if not 0 <= number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a tolerance from 0 to below 1")
    return number


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")  # fails every comparison
