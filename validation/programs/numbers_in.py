"""The numbers that two runs of a program printed, and how many of them agree."""

from __future__ import annotations

import re

FRACTION = r"(?<![\w.:])-?\d+\.\d+(?:e[+-]?\d+)?(?![\de])(?!\s*(?:m?s\b|sec|it/s|tokens/|examples/|秒|词元/|个词元))"
"""A number with a fraction, unless it is a time or a rate."""
PROGRESS = re.compile(r".*[\r\b](?=.)")
"""What a progress bar has written over."""


def numbers(text: str, pattern: str = FRACTION) -> list[float]:
    """The numbers in what a program printed, in order; a pattern may have groups, which are the numbers then."""
    found: list[float] = []
    for line in text.split("\n"):
        for match in re.finditer(pattern, PROGRESS.sub("", line)):
            found += [
                float(word.replace(",", "")) for word in match.groups() or (match[0],) if word
            ]
    return found


def agreement(first: list[float], second: list[float], tolerance: float) -> tuple[int, str]:
    """How many do not agree, and a sentence."""
    if len(first) != len(second):
        return max(len(first), len(second)), f"{len(first)} numbers and, on the CPU, {len(second)}"
    near = sum(
        abs(a - b) <= tolerance * max(1.0, abs(a), abs(b))
        for a, b in zip(first, second, strict=True)
    )
    return len(first) - near, f"{near} of {len(first)} numbers agree to {tolerance:g}"
