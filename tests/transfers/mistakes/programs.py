"""Programs with a mistake each, what is found in them, and what is found once the advice is followed.

A file is a beginning that its programs share, and the programs as diffs: under ``## RULE: WORDS`` a line with ``-`` is
the mistake, those with ``+`` are what the advice says instead, and lines with neither are in both.
"""

import json
import sys
import tempfile
import traceback
from pathlib import Path
from typing import NamedTuple


class Mistake(NamedTuple):
    title: str
    rule: str
    words: str
    before: str
    after: str
    lines: list[int]  # those of the mistake


def mistakes(file: Path) -> list[Mistake]:
    beginning, *parts = file.read_text(encoding="utf-8").split("\n## ")
    found = []
    for part in parts:
        title, _, body = part.partition("\n")
        rule, _, words = title.partition(": ")
        diff = [(line[:1], line[1:]) for line in body.rstrip().splitlines()]
        versions = ["\n".join(text for mark, text in diff if mark != other) for other in "+-"]
        start = beginning.count("\n") + 2
        marks = [mark for mark, _ in diff if mark != "+"]
        lines = [start + i for i, mark in enumerate(marks) if mark == "-"]
        found.append(
            Mistake(
                title, rule, words, *(f"{beginning}\n{version}\n" for version in versions), lines
            )
        )
    return found


def found_in(program: str, file: Path) -> list[tuple[int, str, str]]:
    """The line, the rule and the advice of each finding."""
    import xdevice

    file.write_text(program, encoding="utf-8")
    with xdevice.watch_transfers() as report:
        exec(compile(program, file, "exec"), {"__name__": "__main__"})
    return [(each.line, each.rule, each.advice) for each in report]


def main(name: str, only: str = "") -> None:
    results = []
    for i, mistake in enumerate(mistakes(Path(__file__).with_name(f"{name}.txt"))):
        if only not in mistake.title + mistake.before:
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                versions = {"before": mistake.before, "after": mistake.after}
                found = {k: found_in(v, Path(folder, f"{k}_{i}.py")) for k, v in versions.items()}
            except Exception:
                found = {"error": traceback.format_exc()}
        results.append(found)
    print(json.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
