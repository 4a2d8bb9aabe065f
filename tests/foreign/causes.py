"""Sort what came of tests by its cause, and write the counts into docs/foreign.md."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
DOCS = HERE.parents[1] / "docs"
Results = dict[str, dict[str, str]]


def reasons() -> list[tuple[str, re.Pattern[str]]]:
    """Words of docs/virtual.md, and the expression that finds such a failure by the test's id or its error."""
    page = " ".join((DOCS / "virtual.md").read_text().split())
    found = tomllib.loads((HERE / "cannot.toml").read_text())
    for words in found:
        if words not in page:
            raise SystemExit(f"cannot.toml names {words!r}, which docs/virtual.md does not say")
    return [(words, re.compile(expression)) for words, expression in found.items()]


def sort_by_cause(found: Results, on_the_cpu: set[str]) -> Results:
    """The results, each with its cause: passed, skipped, cannot, CPU, ours; and for cannot the words that say it."""
    known = reasons()
    for test, result in found.items():
        result["cause"] = result["outcome"]
        if result["outcome"] not in ("passed", "skipped"):
            told = next((words for words, error in known if error.search(f"{test} {result['why']}")), None)
            result["cause"] = "cannot" if told else "CPU" if test in on_the_cpu else "ours"
            if told:
                result["told"] = told
    return found


def count(causes: Results) -> Counter[str]:
    return Counter(result["cause"] for result in causes.values())


def in_words(name: str, causes: Results) -> str:
    """The table of one row: how many by cause, and the failures that are ours by their error."""
    by = count(causes)
    ran = by.total() - by["skipped"]
    lines = [
        f"{name}: {ran} run, {by['passed']} passed, {by['cannot']} cannot, {by['CPU']} fail on the CPU too, "
        f"{by['ours']} ours; {by['skipped']} skip themselves"
    ]
    told = Counter(result["told"] for result in causes.values() if "told" in result)
    lines += [f"    cannot: {number} {words}" for words, number in told.most_common()]
    lines += [f"    ours: {test}: {result['why'][:300]}" for test, result in causes.items() if result["cause"] == "ours"]
    return "\n".join(lines)


def write_row(name: str, row: dict[str, Any], by: Counter[str]) -> None:
    """Put the row's counts into the table in docs/foreign.md, in place of those it has."""
    page = DOCS / "foreign.md"
    ran = by.total() - by["skipped"]
    line = f"| {name} | {row['repository']} {row['tag']} | {ran} | {by['passed']} | {by['cannot']} | {by['CPU']} | {by['ours']} |"
    lines = page.read_text().splitlines()
    there = [i for i, text in enumerate(lines) if text.startswith(f"| {name} |")]
    last = max(i for i, text in enumerate(lines) if text.startswith("| "))
    lines[there[0] if there else last + 1 : there[0] + 1 if there else last + 1] = [line]
    page.write_text("\n".join(lines) + "\n")
