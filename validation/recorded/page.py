"""validation/recorded/README.md: its table has a row for each chapter and framework, with the cells by their cause."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from causes import CAUSES, Result

ROOT = Path(__file__).resolve().parents[2]
PAGE = Path(__file__).with_name("README.md")
SUMMARY = ROOT / "docs" / "validation.md"
ROW = re.compile(r"^\| (\S+/\S+) \| (\w+) \| (.*) \|$")

NOTHING = "·"
"""What the table has in place of 0."""
CELLS = "cells"
"""The column with the number of cells; in brackets, those that were recorded printing text."""


class Row(NamedTuple):
    """The cells of a chapter under one framework, counted by cause, and the largest differences."""

    chapter: str
    tab: str
    counts: Counter[str]
    amounts: dict[str, str]

    @classmethod
    def of(cls, chapter: str, tab: str, results: list[Result]) -> Row:
        amounts = {}
        printing = [each.cause for each in results if each.there.strip()]
        amounts[CELLS] = str(len(printing))
        amounts["same"] = str(printing.count("same"))
        if digits := [result.amount for result in results if result.cause == "digits"]:
            amounts["digits"] = f"{max(digits):.0e}"
        ratios = [each.amount for each in results if each.cause == "memory" and each.amount]
        if ratios:
            amounts["memory"] = f"{max(ratios, key=lambda ratio: abs(math.log(ratio))):.2f}"
        return cls(chapter, tab, Counter(result.cause for result in results), amounts)

    def cells(self) -> list[str]:
        """The row's columns after its names."""
        numbers = {CELLS: self.counts.total(), **{cause: self.counts[cause] for cause in CAUSES}}
        found = []
        for column, number in numbers.items():
            amount = self.amounts.get(column) if number else None
            found.append(f"{number or NOTHING}{f' ({amount})' if amount else ''}")
        return found

    def agree(self) -> int:
        """How many cells print the text that was recorded, to the last digits."""
        return int(self.amounts["same"]) + self.counts["name"] + self.counts["digits"]

    def in_words(self) -> str:
        counts = zip(CAUSES.values(), self.cells()[1:], strict=True)
        said = ", ".join(f"{count} {cause}" for cause, count in counts if count != NOTHING)
        return f"{self.chapter} {self.tab}: {self.counts.total()} cells ({self.amounts[CELLS]}), {said}"


def read(page: Path = PAGE) -> dict[tuple[str, str], Row]:
    """The rows of the page's table."""
    found = {}
    for line in page.read_text(encoding="utf-8").splitlines() if page.exists() else ():
        if row := ROW.match(line):
            cells = [cell.strip() for cell in row[3].split("|")]
            counts: Counter[str] = Counter()
            amounts = {"same": "0"}
            for column, cell in zip((CELLS, *CAUSES), cells, strict=True):
                number, _, amount = cell.partition(" ")
                if column in CAUSES:
                    counts[column] = 0 if number == NOTHING else int(number)
                if amount:
                    amounts[column] = amount.strip("()")
            found[row[1], row[2]] = Row(row[1], row[2], counts, amounts)
    return found


def worse(row: Row, before: Row | None) -> str:
    """In which respect a row is worse than it was, or nothing: a cell that has gone to a worse cause.

    Cells that were not run, on a slow machine, may still be what they were.
    """
    if before is None:
        return ""
    had, has = 0, row.counts["not run"]
    for cause, words in CAUSES.items():
        had += before.counts[cause]
        has += row.counts[cause] * (cause != "not run")
        if has < had:
            return f"WORSE: {has} cells are {words!r} or better, {had} on the page"
    return ""


def write(page: Path, *new: Row) -> None:
    """Put rows into the page's table, in the places of their old ones or in order, and write the sums again."""
    rows = read(page) | {(row.chapter, row.tab): row for row in new}
    lines = page.read_text(encoding="utf-8").splitlines()
    head = lines.index(next(line for line in lines if line.startswith("| chapter |")))
    end = head  # of this table: others follow
    while end < len(lines) and lines[end].startswith("|"):
        end += 1
    made = [line_of(each) for _, each in sorted(rows.items())]
    lines[head:end] = [*HEAD, line_of_sums(rows.values()), *made]
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")
    if page == PAGE:
        SUMMARY.write_text(summary(rows.values()), encoding="utf-8")


def line_of(row: Row) -> str:
    return f"| {row.chapter} | {row.tab} | {' | '.join(row.cells())} |"


def line_of_sums(rows: Iterable[Row]) -> str:
    """The first line of the table."""
    rows = list(rows)
    total = total_of(rows)
    return f"{SUMS} {len(rows)} rows | | {' | '.join(total.cells())} |"


def total_of(rows: list[Row]) -> Row:
    """All rows as one, with how many cells print."""
    counts = sum((row.counts for row in rows), Counter[str]())
    amounts = {
        column: str(sum(int(row.amounts[column]) for row in rows)) for column in (CELLS, "same")
    }
    return Row("", "", counts, amounts)


def summary(rows: Iterable[Row]) -> str:
    """docs/validation.md with how many cells print text, and how many of them print the same to the last digits."""
    total = total_of(list(rows))
    printing, agree = (
        f"{int(n):,}".replace(",", " ") for n in (total.amounts[CELLS], total.agree())
    )
    return re.sub(
        r"of the [\d ]+ that were recorded printing text, at least [\d ]+ printed",
        f"of the {printing} that were recorded printing text, at least {agree} printed",
        SUMMARY.read_text(encoding="utf-8"),
    )


SUMS = "| all"
HEAD = (
    f"| chapter | framework | cells | {' | '.join(CAUSES.values())} |",
    f"| --- | --- | {'---: | ' * (len(CAUSES) + 1)}".rstrip(),
)
