"""What cells have printed, kept in CHAPTER.outputs.json, and what has changed since.

An entry is rewritten only if its cell has changed by the rules of `texts`, so
that times and last digits make no diff.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from xdevice.errors import ArgumentError
from xdevice.framework.adapters import registered
from xdevice.tools.course.compare import UNCHANGED, last_line
from xdevice.tools.course.read import Cell, Chapter
from xdevice.tools.course.run import Outcome, TabRun
from xdevice.tools.course.texts import CLOSE, difference
from xdevice.tools.course.values import Curve
from xdevice.tools.launcher.children import Child

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


def runs_of(record: Record, chapter: Chapter) -> list[TabRun]:
    """The tabs as they were recorded: what cells printed, without pictures."""
    runs: list[TabRun] = []
    for tab in sorted(record["tabs"], key=list(registered()).index):  # as a chapter has them
        recorded = record["tabs"][tab]
        entries = _by_key(recorded["cells"])
        cells = chapter.cells_of(tab)
        found = [entries.get(key, {"state": "not run"}) for key in _keys(cells)]
        outcomes = [
            Outcome(entry.get("state", "ok"), _text(entry), error=entry.get("error", ""))
            for entry in found
        ]
        runs.append(TabRun(tab, 0, cells, tuple(outcomes), Child(tab, []), recorded["version"]))
    return runs


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
        entry["error"] = _ADDRESS.sub("0x0", last_line(outcome.error))
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
        if apart.cause not in UNCHANGED:
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
