"""Files of advice, with a line for each rule: ``RULE: what to write instead``.

A line may refer to facts of a copy: ``{at.to}``.
"""

from functools import cache
from pathlib import Path


@cache
def read(beside: str) -> dict[str, str]:
    """The advice by rule, in ``advice.txt`` beside this file."""
    lines = Path(beside).with_name("advice.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.split(": ", 1) for line in lines)
