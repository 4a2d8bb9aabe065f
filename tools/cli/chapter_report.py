"""The result of a chapter's tabs, as tables and as JSON."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from xdevice.tools.course.compare import VERDICTS, Row
from xdevice.tools.course.read import Chapter
from xdevice.tools.course.record import Change
from xdevice.tools.course.run import Outcome, TabRun
from xdevice.tools.launcher.terminal import table
from xdevice.tools.launcher.texts import counted, ending
from xdevice.units import duration, size

_LISTED = ("numbers", "text", "other error", "one error", "beyond")  # one by one
_DIFFERENT = (*_LISTED, "failed", "not run")
_STYLES = {"failed": "red", "beyond": "red", "numbers": "yellow", "text": "yellow"}
_STYLES |= {"other error": "yellow", "one error": "yellow"}
_COLUMNS = 100  # of a changed text that are shown
_DEPENDENTS = 12  # cells that are listed
_PRINTED = 4000  # characters of what a cell printed that are shown


class Report(NamedTuple):
    """The runs of all tabs, with the seed 0 and then others, and what can be said of them."""

    chapter: Chapter
    runs: list[TabRun]
    rows: list[Row]
    changes: list[Change] | None  # since they were recorded; None if nothing was compared

    @property
    def agree(self) -> bool:
        return not any(row.verdict in _DIFFERENT for row in self.rows)


def as_json(report: Report) -> dict[str, Any]:
    """The report as JSON can hold it; the keys are stable."""
    changes = None
    if report.changes is not None:
        changes = [change._asdict() for change in report.changes]
    return {
        "chapter": str(report.chapter.path),
        "tabs": [_tab_as_json(run) for run in report.runs if run.seed == 0],
        "rows": [_row_as_json(row) for row in report.rows],
        "agree": report.agree,
        "changes": changes,
    }


def _tab_as_json(run: TabRun) -> dict[str, Any]:
    pairs = zip(run.cells, run.outcomes, strict=True)
    cells = [
        {"row": cell.row, "name": cell.name, "heading": cell.heading, **_as_json(outcome)}
        for cell, outcome in pairs
    ]
    return {
        "tab": run.tab,
        "version": run.version,
        "status": run.child.status,
        "seconds": round(run.child.seconds, 3),
        "cells": cells,
    }


def _as_json(outcome: Outcome) -> dict[str, Any]:
    return {
        "state": outcome.state,
        "text": outcome.text,
        "error": outcome.error,
        "reason": outcome.reason,
        "cause": outcome.cause,
        "seconds": outcome.seconds,
        "pictures": len(outcome.pictures),
        "curves": [curve._asdict() for curve in outcome.curves],
    }


def _row_as_json(row: Row) -> dict[str, Any]:
    return {
        "row": row.number,
        "heading": row.heading,
        "tabs": list(row.cells),
        "verdict": row.verdict,
        "note": row.note,
    }


def rendered(report: Report, outputs: Path) -> Iterator[RenderableType]:
    """The report for people."""
    first_runs = [run for run in report.runs if run.seed == 0]
    yield _table_of_tabs(first_runs)
    for run in first_runs:
        yield from _failures(run)
    if len(first_runs) > 1:
        yield from _side_by_side(report)
    elif report.changes is None:
        yield from _printed(first_runs[0])
    if report.changes is not None:
        yield from _changes(report.changes, outputs)


def _table_of_tabs(runs: Sequence[TabRun]) -> Table:
    right = ("cells", "ran", "failed", "not run", "wall time", "peak memory")
    rows = table("tab", "version", "result", *right, right=right)
    for run in runs:
        states = Counter(outcome.state for outcome in run.outcomes)
        failed = states["failed"] + states["dead"]
        sign, style, result = "✓", "green", "all cells ran"
        if failed:
            sign, style, result = "✗", "red", f"{counted(failed, 'cell')} failed"
        elif states["not run"] + states["stopped"]:
            sign, style, result = "✗", "red", ending(run.child)
        counts = [len(run.cells), states["ok"], failed, states["stopped"] + states["not run"]]
        rows.add_row(
            Text(f"{sign} {run.tab}", style=style),
            run.version,
            Text(result, style=style),
            *map(str, counts),
            duration(run.child.seconds),
            size(run.child.peak_memory),
        )
    return rows


def _failures(run: TabRun) -> Iterator[Text]:
    """The cells that failed, each with those that fail because of it."""
    pairs = zip(run.cells, run.outcomes, strict=True)
    for number, (cell, outcome) in enumerate(pairs, 1):
        if outcome.failed and not outcome.cause:
            place = f" ({cell.heading})" if cell.heading else ""
            yield Text(f"\n{run.tab}: cell {number}{place} failed", style="bold red")
            yield Text(f"  {outcome.error}", style="red")
            if outcome.reason:
                yield Text(f"  {outcome.reason}")
        yield from _dependents(run, number)


def _dependents(run: TabRun, number: int) -> Iterator[Text]:
    """The cells that fail because of one, in one line."""
    dependents = [
        str(later) for later, outcome in enumerate(run.outcomes, 1) if outcome.cause == number
    ]
    if dependents:
        listed = ", ".join([*dependents[:_DEPENDENTS], *["…"] * (len(dependents) > _DEPENDENTS)])
        verb = "fail" if len(dependents) > 1 else "fails"
        if run.outcomes[number - 1].failed:
            yield Text(f"  {counted(len(dependents), 'later cell')} {verb} without it: {listed}")
        else:  # a download by a command of the shell
            words = f"{run.tab}: cell {number} could not download, as it says"
            yield Text(f"\n{words}; {counted(len(dependents), 'later cell')} {verb}: {listed}")


def _side_by_side(report: Report) -> Iterator[RenderableType]:
    """How many cells have each verdict, and those that differ."""
    counts = Counter(row.verdict for row in report.rows)
    yield Text(f"\n{counted(len(report.rows), 'cell')}, side by side", style="bold")
    for verdict, words in VERDICTS.items():
        if counts[verdict]:
            yield Text(f"{counts[verdict]:5}  {words}", style=_STYLES.get(verdict, ""))
    for row in report.rows:
        if row.verdict in _LISTED:
            place = f" ({row.heading})" if row.heading else ""
            verdict = VERDICTS[row.verdict]
            yield Text(f"\nrow {row.number + 1}{place}: {verdict}", style=_STYLES[row.verdict])
            yield Text(f"  {row.note}")


def _printed(run: TabRun) -> Iterator[Text]:
    """What the cells of the only tab printed."""
    for number, outcome in enumerate(run.outcomes, 1):
        lines = [_beginning(outcome.text)] if outcome.text else []
        if outcome.ran and outcome.error:
            lines.append(outcome.error)
        if outcome.pictures:
            lines.append(f"({counted(len(outcome.pictures), 'picture')})")
        if lines:
            yield Text(f"\n[{number}]", style="dim")
            yield Text("\n".join(lines))


def _beginning(text: str) -> str:
    """The text, or the beginning of one that would fill many screens."""
    if len(text) <= _PRINTED:
        return text
    shown = text[:_PRINTED].rpartition("\n")[0] or text[:_PRINTED]
    rest = len(text) - len(shown)
    return f"{shown}\n… ({rest} more characters; --html FILE shows all)"


def _changes(changes: Sequence[Change], outputs: Path) -> Iterator[Text]:
    if not changes:
        yield Text(f"\nnothing has changed since {outputs.name} was recorded", style="green")
        return
    yield Text(f"\n{counted(len(changes), 'change')} since {outputs.name}", style="bold")
    for change in changes:
        cell = f"cell {change.number}: " if change.number else ""
        yield Text(f"\n{change.tab}: {cell}{change.words}", style="yellow")
        for name, text in (("recorded", change.recorded), ("printed", change.printed)):
            if text:
                yield Text(f"  {name:8}  {_shortened(text)}")


def _shortened(text: str) -> str:
    words = " ".join(text.split())
    if len(words) > _COLUMNS:
        return f"{words[:_COLUMNS]}…"
    return words
