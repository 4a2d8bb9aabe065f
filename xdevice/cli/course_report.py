"""The result of a chapter's tabs, as tables and as JSON."""

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from xdevice.course.chapters import Chapter
from xdevice.course.outcomes import Outcome
from xdevice.course.running import TabRun
from xdevice.kit.units import duration, size
from xdevice.launcher.terminal import table
from xdevice.launcher.texts import ending


def as_json(chapter: Chapter, runs: Sequence[TabRun]) -> dict[str, Any]:
    """The report as JSON can hold it; the keys are stable."""
    return {"chapter": str(chapter.path), "tabs": [_tab_as_json(run) for run in runs]}


def _tab_as_json(run: TabRun) -> dict[str, Any]:
    pairs = zip(run.cells, run.outcomes, strict=True)
    cells = [
        {"row": cell.row, "name": cell.name, "heading": cell.heading, **outcome.as_json()}
        for cell, outcome in pairs
    ]
    return {
        "tab": run.tab,
        "status": run.child.status,
        "seconds": run.child.seconds,
        "cells": cells,
    }


def rendered(chapter: Chapter, runs: Sequence[TabRun]) -> Iterator[RenderableType]:
    """The report for people."""
    right = ("cells", "ran", "failed", "not run", "wall time", "peak memory")
    rows = table("tab", "result", *right, right=right)
    for run in runs:
        states = [outcome.state for outcome in run.outcomes]
        failed = states.count("failed") + states.count("dead")
        good = states.count("ok") == len(states)
        sign, style = ("✓", "green") if good else ("✗", "red")
        counts = [len(states), states.count("ok"), failed, states.count("not run")]
        result = "all cells ran"
        if not good:
            result = "a cell failed" if failed else ending(run.child)
        rows.add_row(
            Text(f"{sign} {run.tab}", style=style),
            Text(result, style=style),
            *map(str, counts),
            duration(run.child.seconds),
            size(run.child.peak_memory),
        )
    yield rows
    for run in runs:
        for number, (cell, outcome) in enumerate(zip(run.cells, run.outcomes, strict=True), 1):
            if outcome.failed:
                yield from _failure(run.tab, number, cell.heading, outcome)
    if len(runs) == 1:
        yield from _printed(runs[0])


def _failure(tab: str, number: int, heading: str, outcome: Outcome) -> Iterator[Text]:
    place = f" ({heading})" if heading else ""
    yield Text(f"\n{tab}: cell {number}{place} failed", style="bold red")
    yield Text(f"  {outcome.error}", style="red")


def _printed(run: TabRun) -> Iterator[Text]:
    """What the cells of the only tab printed."""
    for number, outcome in enumerate(run.outcomes, 1):
        pictures = f"[{len(outcome.pictures)} pictures]" if outcome.pictures else ""
        if outcome.text or pictures:
            yield Text(f"\n[{number}]", style="dim")
            yield Text(f"{outcome.text}{pictures}")
