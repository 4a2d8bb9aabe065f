"""The results of the parts of `on_gpu.py`, read from their files, and the report as text."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias
from xml.etree import ElementTree

Results: TypeAlias = dict[str, Any]  # of one part of the program, as JSON can hold them


def read_lines(file: Path) -> Results:
    """Lines of JSON: those with a ``label`` are rows, and the others are merged."""
    results: Results = {"rows": []}
    for line in _lines_in(file):
        if "label" in line:
            results["rows"].append(line)
        else:
            results |= line
    return results


def read_tests(file: Path) -> Results:
    """The numbers of tests that passed, failed and were skipped, from JUnit's XML; the reasons."""
    failures: list[dict[str, str]] = []
    skips: Counter[str] = Counter()
    passed = 0
    for case in ElementTree.parse(file).iter("testcase"):
        name = f"{case.get('classname', '').rpartition('.')[2]}.{case.get('name')}"
        problems = [child for child in case if child.tag in ("failure", "error")]
        skipped = case.find("skipped")
        if problems:
            first_line = (problems[0].get("message") or "").partition("\n")[0]
            failures.append({"test": name, "message": first_line[:300]})
        elif skipped is not None:
            skips[skipped.get("message") or ""] += 1
        else:
            passed += 1
    return {"passed": passed, "failed": len(failures), "failures": failures, "skipped": dict(skips)}


def read_overhead(file: Path) -> Results:
    """xdevice's own rows of `overhead.py`, with the verdicts on its budgets."""
    report = json.loads(file.read_text(encoding="utf-8"))
    verdicts_of: dict[str, list[Results]] = {}
    for verdict in report["verdicts"]:
        verdicts_of.setdefault(verdict["question"], []).append(verdict)
    rows = [
        {
            "label": row["question"],
            "ns": row["ns"],
            "ratio": row["middle"],
            "verdicts": verdicts_of.get(row["question"], []),
        }
        for row in report["results"]
        if row["contender"] == "xdevice"
    ]
    return {"rows": rows, "missing": report["missing"]}


def read_experiments(file: Path) -> Results:
    """The rows of the lessons' experiments, and those that were skipped or failed."""
    rows: list[Results] = []
    notes: list[str] = []
    failures = 0
    for event in _lines_in(file):
        name = event.get("experiment", "all")
        if "row" in event:
            row = event["row"]
            rows.append({**row, "label": f"{name}: {row['label']}"})
        elif "error" in event:
            failures += 1
            notes.append(f"{name}: {event['error']}")
        elif "skipped" in event:
            notes.append(f"{name}: {event['skipped']}")
    return {"rows": rows, "notes": notes, "failed": failures}


def _lines_in(file: Path) -> list[dict[str, Any]]:
    """The lines that a process wrote, without a line that is not complete."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n")[:-1]]


def headline(outcome: dict[str, Any]) -> str:
    """The part, how it ended, and why."""
    title = f"{outcome['name']} {outcome['backend']}".strip()
    text = f"{title}: {outcome['status']}, {outcome['seconds']:.0f} s"
    if outcome["reason"]:
        text += f": {outcome['reason']}"
    return text


def lines(report: dict[str, Any]) -> Iterator[str]:
    """The whole report as text."""
    about = report["about"]
    gpus = "two virtual GPUs" if about["virtual"] else "real GPUs"
    yield f"xdevice on {gpus}; Python {about['python']}, {about['platform']}"
    for part in report["parts"]:
        yield ""
        yield f"== {headline(part)}"
        yield from _DETAILS[part["name"]](part["results"])


def _values(results: Results) -> Iterator[str]:
    for row in results.get("rows", ()):
        yield f"  {row['label']}: {row['value']}"


def _tests(results: Results) -> Iterator[str]:
    if not results:
        return
    skipped = sum(results["skipped"].values())
    yield f"  {results['passed']} passed, {results['failed']} failed, {skipped} skipped"
    for failure in results["failures"]:
        yield f"  failed: {failure['test']}: {failure['message']}"
    for reason, number in results["skipped"].items():
        yield f"  skipped {number}: {reason}"


def _transfers(results: Results) -> Iterator[str]:
    if not results:
        return
    bus_speed = results.get("bus_gb_per_second")
    bus = f"  bus: {results.get('bus', 'unknown')}"
    if bus_speed:
        bus += f", {bus_speed:.1f} GB/s each way"
    yield bus
    for row in results.get("rows", ()):
        yield _transfer(row, bus_speed)


def _transfer(row: Results, bus_speed: float | None) -> str:
    if "skipped" in row:
        return f"  {row['label']:<58} skipped: {row['skipped']}"
    speed = row["gb_per_second"]
    text = f"  {row['label']:<58}{speed:>8.2f} GB/s"
    if bus_speed:
        text += f", {speed / bus_speed:.0%} of the bus"
    return text


def _overhead(results: Results) -> Iterator[str]:
    for row in results.get("rows", ()):
        text = f"  {row['label']:<50}{row['ns']:>14,.0f} ns  "
        text += "–" if row["ratio"] is None else f"{row['ratio']:.2f} × native"
        for verdict in row["verdicts"]:
            if verdict["ratio"] is not None:
                word = "met" if verdict["ratio"] <= verdict["limit"] else "missed"
                text += f", {word} (at most {verdict['limit']:g} × {verdict['against']})"
        yield text


def _experiments(results: Results) -> Iterator[str]:
    for row in results.get("rows", ()):
        microseconds = row["seconds_each"] * 1e6
        ratio = row["ratio_to_cpu"]
        yield f"  {row['label']:<62}{microseconds:>14,.1f} µs  {ratio:.2f} × CPU"
    for note in results.get("notes", ()):
        yield f"  {note}"


_DETAILS = {
    "machine": _values,
    "tests": _tests,
    "transfers": _transfers,
    "memory": _values,
    "overhead": _overhead,
    "bench": _experiments,
}
