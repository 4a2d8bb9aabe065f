"""Compare what came of the cells: under each framework, row by row, and with what was recorded.

A record is CHAPTER.outputs.json. An entry is rewritten only if its cell has
changed by the rules of `texts`, so that times and last digits make no diff.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from xdevice.errors import ArgumentError
from xdevice.tools.course.read import Cell
from xdevice.tools.course.run import Outcome, TabRun
from xdevice.tools.course.texts import (
    CLOSE,
    Difference,
    difference,
    largest_of,
    numbers_differ,
    worst,
)
from xdevice.tools.course.values import (
    Curve,
    Series,
    Values,
    have_same_shape,
    t_test,
    values_of,
    why_not_comparable,
)

VERDICTS = {
    "alone": "only one tab has this cell, or ran it",
    "silent": "prints and draws nothing",
    "same": "prints the same",
    "digits": "the same but for the last digits",
    "words": "the same values, in other words",
    "times": "the same but for times",
    "memory": "the same but for amounts of memory",
    "seeds": "other numbers, as far apart as other seeds",
    "numbers": "other numbers",
    "text": "another text",
    "other error": "other error",
    "one error": "error in one tab only",
    "beyond": "numbers further apart than seeds explain",
    "failed": "fails",
    "not run": "not run",
}
"""What can be said of a row, from the best to the worst."""

_ORDER = list(VERDICTS)
_UNCHANGED = ("same", "name", "digits", "times")
_WORDS = 6  # of a text, where it begins to differ from another, that are shown
_CHARACTERS = 60  # of these words


@dataclass(frozen=True, slots=True)
class Row:
    """The cells of several tabs that stand for each other, what came of them, and what is said of it."""

    number: int
    cells: dict[str, Cell]  # by tab
    outcomes: dict[str, Outcome]
    verdict: str
    note: str = ""

    @property
    def heading(self) -> str:
        return next(iter(self.cells.values())).heading


class Verdict(NamedTuple):
    verdict: str
    note: str = ""


def rows_of(runs: Sequence[TabRun]) -> list[Row]:
    """The rows of the runs, with what can be said of each. Runs with other seeds follow the first."""
    first_runs = {run.tab: run for run in runs if run.seed == 0}
    rows: list[Row] = []
    for number in sorted({cell.row for run in first_runs.values() for cell in run.cells}):
        cells = {
            tab: cell for tab, run in first_runs.items() for cell in run.cells if cell.row == number
        }
        repeated = {
            tab: [run.outcome_of_row[number] for run in runs if _has(run, tab, number)]
            for tab in cells
        }
        outcomes = {tab: first_runs[tab].outcome_of_row[number] for tab in cells}
        rows.append(Row(number, cells, outcomes, *verdict_of(outcomes, repeated)))
    return rows


def rows_to_repeat(rows: Sequence[Row]) -> list[Row]:
    """The rows whose numbers differ, so that runs with other seeds can tell more."""
    return [row for row in rows if row.verdict == "numbers"]


def _has(run: TabRun, tab: str, number: int) -> bool:
    """Whether the tab's run, with whichever seed, ran the cell of that row."""
    return run.tab == tab and number in run.outcome_of_row and run.outcome_of_row[number].ran


def verdict_of(
    outcomes: Mapping[str, Outcome], repeated: Mapping[str, Sequence[Outcome]]
) -> Verdict:
    failed = [tab for tab, outcome in outcomes.items() if outcome.failed]
    missing = [tab for tab, outcome in outcomes.items() if outcome.state in ("stopped", "not run")]
    if failed or missing:
        note = f"under {', '.join(failed or missing)}"
        ran = {tab: outcome for tab, outcome in outcomes.items() if outcome.ran}
        if len(ran) > 1:
            note += f"; under the others: {VERDICTS[verdict_of(ran, repeated).verdict]}"
        return Verdict("failed" if failed else "not run", note)
    raised = {tab: _last_line(outcome.error) for tab, outcome in outcomes.items() if outcome.error}
    if raised and len(outcomes) > 1:
        verdict = _between_errors(raised, outcomes)
        if verdict.verdict != "same":
            return verdict
    shows = [outcome.text or outcome.curves or outcome.pictures for outcome in outcomes.values()]
    if not any(shows) and not raised:
        return Verdict("silent")
    if not any(shows) and len(outcomes) > 1:
        return Verdict("same")
    if len(outcomes) < 2:
        return Verdict("alone")
    values = {
        tab: [
            values_of(outcome.text, outcome.curves, tab) for outcome in [first, *repeated[tab][1:]]
        ]
        for tab, first in outcomes.items()
    }
    verdicts = [_between(a, b, values[a], values[b]) for a, b in combinations(outcomes, 2)]
    return max(verdicts, key=lambda item: _ORDER.index(item.verdict))


def _between_errors(raised: Mapping[str, str], outcomes: Mapping[str, Outcome]) -> Verdict:
    """What can be said of the errors that are part of the lesson."""
    if len(raised) < len(outcomes):
        silent = ", ".join(tab for tab in outcomes if tab not in raised)
        errors = "; ".join(f"{tab}: {error}" for tab, error in raised.items())
        return Verdict("one error", f"{errors}; none under {silent}")
    texts = {tab: values_of(error, (), tab).text for tab, error in raised.items()}
    for a, b in combinations(raised, 2):
        if difference(texts[a], texts[b]).cause not in _UNCHANGED:
            return Verdict("other error", f"{a}: {raised[a]}; {b}: {raised[b]}")
    return Verdict("same")


def _last_line(error: str) -> str:
    """The type and the last line of an error."""
    lines = error.strip().splitlines()
    if len(lines) < 2:
        return error
    return f"{error.partition(':')[0]}: {lines[-1].strip()}"


def _between(a: str, b: str, values_a: Sequence[Values], values_b: Sequence[Values]) -> Verdict:
    """What can be said of what two tabs print, with each seed."""
    verdict = _between_texts(values_a[0], values_b[0])
    note = f"{a} and {b}"
    if verdict.note:
        note = f"{note}: {verdict.note}"
    if verdict.verdict == "text":
        return Verdict("text", note)
    if verdict.verdict != "numbers":
        return verdict
    series = [[each.series for each in values] for values in (values_a, values_b)]
    seeds = min(map(len, series))
    comparable = all(have_same_shape(series[0][0], run) for runs in series for run in runs)
    if seeds < 2 or not comparable:
        return Verdict("numbers", note)
    test = t_test(series[0][:seeds], series[1][:seeds])
    beyond = "beyond" if test.is_significant else "seeds"
    sizes = f"t {test.t:.3g}, limit {test.limit:.3g}"
    return Verdict(beyond, f"{a} and {b}: {test.note} ({sizes})")


def _between_texts(a: Values, b: Values) -> Verdict:
    """What can be said of the first run of two tabs."""
    apart = difference(a.text, b.text)
    if apart.cause == "name":
        apart = Difference("same")
    has_curves = any(series.is_curve for series in [*a.series, *b.series])
    if apart.cause not in ("text", "numbers") and not has_curves:
        return Verdict(apart.cause)
    reason = why_not_comparable(a, b)
    if reason or a.are_none:
        return Verdict("text", reason or _where_they_differ(a.text, b.text))
    numbers = worst(_values_differ(x, y) for x, y in zip(a.series, b.series, strict=True))
    if numbers.cause == "numbers":
        return Verdict("numbers")
    if apart.cause == "text":
        return Verdict("words")
    return Verdict(worst([apart, numbers]).cause)


def _where_they_differ(a: str, b: str) -> str:
    """The first words of each text that the other does not have there."""
    words_a, words_b = a.split(), b.split()
    pairs = zip(words_a, words_b, strict=False)
    common = next(
        (number for number, (x, y) in enumerate(pairs) if x != y), min(len(words_a), len(words_b))
    )
    return f"{_excerpt(words_a[common:])} and {_excerpt(words_b[common:])}"


def _excerpt(words: Sequence[str]) -> str:
    if not words:
        return "no more text"
    text = " ".join(words[:_WORDS])
    if len(text) > _CHARACTERS:
        text = text[:_CHARACTERS]
    return repr(text)


def _values_differ(a: Series, b: Series) -> Difference:
    """The difference of two series of the same length."""
    largest = largest_of([*a.values, *b.values])
    return worst(
        numbers_differ(x, y, max(a.unit, b.unit), largest)
        for x, y in zip(a.values, b.values, strict=True)
        if x != y and str(x) != str(y)
    )


# ------------------------------------------------------------------- a record

Entry: TypeAlias = dict[str, Any]
"""A cell in the file: its key, and what it printed."""

Record: TypeAlias = dict[str, Any]

_FORMAT = 1
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,}\b")


class Change(NamedTuple):
    """A cell that does not print what was recorded."""

    tab: str
    number: int  # of the cell in its tab, from 1; 0 if the chapter no longer has it
    words: str
    recorded: str = ""
    printed: str = ""


def record_path(chapter: Path) -> Path:
    return chapter.with_suffix(".outputs.json")


def read_record(path: Path) -> Record:
    """The record in the file; an error says how to make one."""
    if not path.is_file():
        raise ArgumentError(
            f"{str(path)!r} does not exist; xdevice chapter --record CHAPTER writes it"
        )
    try:
        record: Record = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ArgumentError(f"{str(path)!r} is not JSON ({error}); record it again") from error
    if not isinstance(record, dict) or record.get("format") != _FORMAT:
        raise ArgumentError(f"{str(path)!r} is not a record of this version; record it again")
    return record


def write_record(path: Path, runs: Sequence[TabRun]) -> None:
    """Write what the tabs print into the file; other tabs stay in it."""
    record: Record = {"format": _FORMAT, "tabs": {}}
    if path.is_file():
        record = read_record(path)
    for run in runs:
        old = _by_key(record["tabs"].get(run.tab, {}).get("cells", []))
        entries: list[Entry] = []
        for key, outcome in zip(_keys(run.cells), run.outcomes, strict=True):
            entry = _entry(key, outcome)
            if key in old and _change(old[key], entry) is None:
                entry = old[key]
            entries.append(entry)
        record["tabs"][run.tab] = {"version": run.version, "cells": entries}
    text = json.dumps(record, indent=1, ensure_ascii=False, sort_keys=True)
    path.write_text(f"{text}\n", encoding="utf-8")


def changes_since(record: Record, runs: Sequence[TabRun]) -> list[Change]:
    """What the tabs print otherwise than recorded."""
    changes: list[Change] = []
    for run in runs:
        if run.tab not in record["tabs"]:
            changes.append(Change(run.tab, 0, "this tab was not recorded"))
            continue
        entries = _by_key(record["tabs"][run.tab]["cells"])
        pairs = zip(_keys(run.cells), run.outcomes, strict=True)
        for number, (key, outcome) in enumerate(pairs, 1):
            change: tuple[str, str, str] | None = ("this cell was not recorded", "", outcome.text)
            if key in entries:
                change = _change(entries.pop(key), _entry(key, outcome))
            if change is not None:
                changes.append(Change(run.tab, number, *change))
        for entry in entries.values():
            text = _text(entry)
            changes.append(Change(run.tab, 0, "a recorded cell is gone", text))
    return changes


def _entry(key: str, outcome: Outcome) -> Entry:
    entry: Entry = {"cell": key}
    if outcome.text:
        entry["text"] = _ADDRESS.sub("0x0", outcome.text).splitlines()
    if outcome.state != "ok":
        entry["state"] = outcome.state
    if outcome.error:
        entry["error"] = _ADDRESS.sub("0x0", _last_line(outcome.error))
    if outcome.pictures:
        entry["pictures"] = len(outcome.pictures)
    if outcome.curves:
        entry["curves"] = [_curve_entry(curve) for curve in outcome.curves]
    return entry


def _curve_entry(curve: Curve) -> dict[str, str]:
    """The curve with five digits, as strings, which are one line each."""
    x = " ".join(f"{value:.5g}" for value in curve.x)
    y = " ".join(f"{value:.5g}" for value in curve.y)
    return {"label": curve.label, "x": x, "y": y}


def _keys(cells: Sequence[Cell]) -> list[str]:
    """The key of each cell: its name, or a digest of its code; equal ones are numbered."""
    counts: Counter[str] = Counter()
    keys: list[str] = []
    for cell in cells:
        key = cell.name or sha256(cell.code.strip().encode()).hexdigest()[:10]
        counts[key] += 1
        if counts[key] > 1:
            key = f"{key} {counts[key]}"
        keys.append(key)
    return keys


def _by_key(entries: Sequence[Entry]) -> dict[str, Entry]:
    return {entry["cell"]: entry for entry in entries}


def _change(recorded: Mapping[str, Any], entry: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """What has changed, with both texts; ``None`` if nothing has that counts."""
    old_state, new_state = recorded.get("state", "ok"), entry.get("state", "ok")
    if old_state != new_state:
        words = f"was {old_state}, is {new_state}"
        return words, recorded.get("error", ""), entry.get("error", "")
    for old, new, noun in (
        (_text(recorded), _text(entry), "text"),
        (recorded.get("error", ""), entry.get("error", ""), "error"),
    ):
        apart = difference(new, old)
        if apart.cause not in _UNCHANGED:
            return f"other {noun if apart.cause == 'text' else apart.cause}", old, new
    if recorded.get("pictures", 0) != entry.get("pictures", 0):
        return "another number of pictures", "", ""
    return _change_of_curves(recorded.get("curves", []), entry.get("curves", []))


def _text(entry: Mapping[str, Any]) -> str:
    return "\n".join(entry.get("text", []))


def _change_of_curves(
    recorded: Sequence[Mapping[str, str]], curves: Sequence[Mapping[str, str]]
) -> tuple[str, str, str] | None:
    if [curve["label"] for curve in recorded] != [curve["label"] for curve in curves]:
        return "other curves", "", ""
    for old, new in zip(recorded, curves, strict=True):
        for axis in ("x", "y"):
            if not _are_close(old[axis], new[axis]):
                return f"another curve {new['label']!r}", old[axis], new[axis]
    return None


def _are_close(recorded: str, printed: str) -> bool:
    """Whether the points are within the last digits of the largest."""
    old = [float(value) for value in recorded.split()]
    new = [float(value) for value in printed.split()]
    if len(old) != len(new):
        return False
    tolerance = float(CLOSE) * max(map(abs, old), default=0.0)
    return all(
        a == b or str(a) == str(b) or abs(a - b) <= tolerance for a, b in zip(old, new, strict=True)
    )
