"""Sort what came of tests by its cause, and write the counts into docs/several/foreign.md."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import tomllib

HERE = Path(__file__).resolve().parent
DOCS = HERE.parents[1] / "docs"
HEADS = {"passed": "passed", "cannot": "cannot", "CPU": "fail on the CPU too", "ours": "ours"}
DOWNLOADS = re.compile(
    "couldn't connect to|offline mode|OfflineMode|Name or service not known|Max retries|URLError|hf_hub_download"
)
Results = dict[str, dict[str, str]]


def reasons() -> list[tuple[str, re.Pattern[str]]]:
    """Words of docs/several/virtual*.md, and the expression that finds such a failure by the test's id or its error."""
    pages = " ".join(" ".join(page.read_text() for page in (DOCS / "several").glob("virtual*.md")).split())
    found = tomllib.loads((HERE / "cannot.toml").read_text())
    for words in found:
        if words not in pages:
            raise SystemExit(f"cannot.toml names {words!r}, which no docs/several/virtual*.md says")
    return [(words, re.compile(expression)) for words, expression in found.items()]


def sort_by_cause(found: Results, on_the_cpu: set[str]) -> Results:
    """The results, each with its cause: passed, skipped, cannot, CPU, ours; and for cannot the words that say it.

    A test that downloads, on a machine without a network, fails as on the CPU.
    """
    known = reasons()
    for test, result in found.items():
        result["cause"] = result["outcome"]
        if result["outcome"] not in ("passed", "skipped"):
            told = next((words for words, error in known if error.search(f"{test} {result['why']}")), None)
            result["cause"] = (
                "cannot" if told else "CPU" if test in on_the_cpu or DOWNLOADS.search(result["why"]) else "ours"
            )
            if told:
                result["told"] = told
    return found


def count(causes: Results) -> Counter[str]:
    return Counter(result["cause"] for result in causes.values())


def in_words(name: str, causes: Results) -> str:
    """The table of one row: how many by cause, and the failures that are ours by their error."""
    by = count(causes)
    ran = by.total() - by["skipped"]
    counts = ", ".join(f"{by[cause]} {words}" for cause, words in HEADS.items())
    lines = [f"{name}: {ran} run, {counts}; {by['skipped']} skip themselves"]
    told = Counter(result["told"] for result in causes.values() if "told" in result)
    lines += [f"    cannot: {number} {words}" for words, number in told.most_common()]
    ours = [(test, result["why"]) for test, result in causes.items() if result["cause"] == "ours"]
    lines += [f"    ours: {test}: {why[:300]}" for test, why in ours]
    return "\n".join(lines)


def write_row(name: str, row: dict[str, Any], there: int, by: Counter[str]) -> None:
    """Put the row's counts into the table in docs/several/foreign.md, in place of those it has."""
    page = DOCS / "several" / "foreign.md"
    ran = by.total() - by["skipped"]
    cells = [name, f"{row['repository']} {row['tag']}", f"{ran} of {there}", *(by[cause] for cause in HEADS)]
    line = f"| {' | '.join(map(str, cells))} |"
    lines = page.read_text().splitlines()
    old = [i for i, text in enumerate(lines) if text.startswith(f"| {name} |")]
    last = max(i for i, text in enumerate(lines) if text.startswith("| "))
    lines[old[0] if old else last + 1 : old[0] + 1 if old else last + 1] = [line]
    page.write_text("\n".join(lines) + "\n")
