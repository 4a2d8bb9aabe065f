"""What came of a row: in words, and as its row in validation/foreign/README.md."""

from __future__ import annotations

from collections import Counter
from typing import Any

from causes import ANYWHERE, CAUSES, DOCS, Results, count

PAGE = DOCS / "several" / "foreign.md"


def in_words(name: str, causes: Results) -> str:
    """How many by cause, why tests skipped themselves, and the failures that are ours by their error."""
    by = count(causes)
    counts = ", ".join(f"{by[cause]} {words}" for cause, words in CAUSES.items())
    lines = [
        f"{name}: {by.total() - by['skipped'] - by['lost']} run, {counts}; {by['skipped']} skip themselves"
    ]
    for cause in ("cannot", "CUDA", "package", "download"):
        told = Counter(result["told"] for result in causes.values() if result["cause"] == cause)
        lines += [f"    {CAUSES[cause]}: {number} {words}" for words, number in told.most_common()]
    skipped = Counter(result["why"] for result in causes.values() if result["cause"] == "skipped")
    lines += [f"    skipped: {number} {why[:150]}" for why, number in skipped.most_common(10)]
    for cause in ("CPU", "lost", "ours"):
        of_it = [
            (test, result["why"]) for test, result in causes.items() if result["cause"] == cause
        ]
        lines += [
            f"    {CAUSES[cause]}: {test}: {' '.join(why.split())[:300]}" for test, why in of_it
        ]
    return "\n".join(lines)


def write_row(name: str, row: dict[str, Any], there: int, causes: Results) -> None:
    """Put the row's counts into the table, in place of those it has."""
    by = count(causes)
    ran = by.total() - by["skipped"] - by["lost"]
    anywhere = sum(by[cause] for cause in ANYWHERE)
    project = f"{row['repository']} {row['tag']}"
    counts = by["passed"], by["cannot"], anywhere, by["skipped"], by["lost"], by["ours"]
    cells = [name, project, f"{ran} of {there}", *counts]
    line = f"| {' | '.join(map(str, cells))} |"
    lines = PAGE.read_text().splitlines()
    old = [i for i, text in enumerate(lines) if text.startswith(f"| {name} |")]
    last = max(i for i, text in enumerate(lines) if text.startswith("| "))
    lines[old[0] if old else last + 1 : old[0] + 1 if old else last + 1] = [line]
    PAGE.write_text("\n".join(lines) + "\n")
