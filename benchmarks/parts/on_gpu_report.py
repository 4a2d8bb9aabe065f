"""The results of the parts of `on_gpu.py`, read from their files, and the report as text."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree


def read_lines(file: Path) -> dict[str, Any]:
    """Lines of JSON, each a dict: those with a ``label`` are rows, the others are merged into one."""
    found: dict[str, Any] = {"rows": []}
    for told in _told(file):
        if "label" in told:
            found["rows"].append(told)
        else:
            found |= told
    return found


def read_tests(file: Path) -> dict[str, Any]:
    """How many tests passed, failed and were skipped, from JUnit's XML; failures and reasons by name."""
    failures: list[dict[str, str]] = []
    skips: Counter[str] = Counter()
    passed = 0
    for case in ElementTree.parse(file).iter("testcase"):
        name = f"{case.get('classname', '').rpartition('.')[2]}.{case.get('name')}"
        wrong = [child for child in case if child.tag in ("failure", "error")]
        skipped = case.find("skipped")
        if wrong:
            failures.append(
                {"test": name, "message": (wrong[0].get("message") or "").partition("\n")[0][:300]}
            )
        elif skipped is not None:
            skips[skipped.get("message") or ""] += 1
        else:
            passed += 1
    return {"passed": passed, "failed": len(failures), "failures": failures, "skipped": dict(skips)}


def read_overhead(file: Path) -> dict[str, Any]:
    """xdevice's own rows of `overhead.py`, with what each budget allows."""
    report = json.loads(file.read_text(encoding="utf-8"))
    limits = {
        title: (budget["limit"], budget["against"]) for title, budget in report["budget"].items()
    }
    rows = [
        {"label": row["question"], "ns": row["ns"], "ratio": row["ratio"], "against_budget": row["against_budget"],
         "limit": limits.get(row["question"], (None,))[0]}
        for row in report["results"] if row["contender"] == "xdevice"
    ]  # fmt: skip
    return {"rows": rows, "missing": report["missing"]}


def read_experiments(file: Path) -> dict[str, Any]:
    """The rows of the lessons' experiments, and which were skipped or failed."""
    rows, notes, failed = [], [], 0
    for told in _told(file):
        if "row" in told:
            rows.append({**told["row"], "label": f"{told['experiment']}: {told['row']['label']}"})
        elif "error" in told or "skipped" in told:
            failed += "error" in told
            notes.append(
                f"{told.get('experiment', 'all')}: {told.get('error') or told.get('skipped')}"
            )
    return {"rows": rows, "notes": notes, "failed": failed}


def _told(file: Path) -> list[dict[str, Any]]:
    """The lines that a process wrote; one that it had not finished is left out."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n")[:-1]]


def headline(outcome: dict[str, Any]) -> str:
    """The part, how it ended, and why."""
    why = f": {outcome['why']}" if outcome["why"] else ""
    title = f"{outcome['name']} {outcome['backend']}".strip()
    return f"{title}: {outcome['status']}, {outcome['seconds']:.0f} s{why}"


def lines(report: dict[str, Any]) -> Iterator[str]:
    """The whole report as text."""
    about = report["about"]
    gpus = "two virtual GPUs" if about["virtual"] else "real GPUs"
    yield f"xdevice on {gpus}; Python {about['python']}, {about['platform']}"
    for part in report["parts"]:
        yield ""
        yield f"== {headline(part)}"
        yield from _DETAILS[part["name"]](part["found"])


def _machine(found: dict[str, Any]) -> Iterator[str]:
    for row in found.get("rows", ()):
        yield f"  {row['label']}: {row['value']}"


def _tests(found: dict[str, Any]) -> Iterator[str]:
    if found:
        yield f"  {found['passed']} passed, {found['failed']} failed, {sum(found['skipped'].values())} skipped"
        yield from (f"  failed: {each['test']}: {each['message']}" for each in found["failures"])
        yield from (f"  skipped {number}: {reason}" for reason, number in found["skipped"].items())


def _transfers(found: dict[str, Any]) -> Iterator[str]:
    bus = found.get("bus_gb_per_second")
    if found:
        yield f"  bus: {found.get('bus', 'unknown')}" + (
            f", {bus:.1f} GB/s each way" if bus else ""
        )
    for row in found.get("rows", ()):
        if "skipped" in row:
            yield f"  {row['label']:<58} skipped: {row['skipped']}"
        else:
            share = f", {row['gb_per_second'] / bus:.0%} of the bus" if bus else ""
            yield f"  {row['label']:<58}{row['gb_per_second']:>8.2f} GB/s{share}"


def _memory(found: dict[str, Any]) -> Iterator[str]:
    for row in found.get("rows", ()):
        yield f"  {row['label']}: {row['value']}"


def _overhead(found: dict[str, Any]) -> Iterator[str]:
    for row in found.get("rows", ()):
        ratio = "–" if row["ratio"] is None else f"{row['ratio']:.2f} × native"
        judged = row["limit"] and row["against_budget"]
        verdict = (
            f", {'met' if judged <= row['limit'] else 'missed'} (at most {row['limit']:g})"
            if judged
            else ""
        )
        yield f"  {row['label']:<36}{row['ns']:>14,.0f} ns  {ratio}{verdict}"


def _experiments(found: dict[str, Any]) -> Iterator[str]:
    for row in found.get("rows", ()):
        yield f"  {row['label']:<62}{row['seconds_each'] * 1e6:>14,.1f} µs  {row['ratio_to_cpu']:.2f} × CPU"
    yield from (f"  {note}" for note in found.get("notes", ()))


_DETAILS = {
    "machine": _machine,
    "tests": _tests,
    "transfers": _transfers,
    "memory": _memory,
    "overhead": _overhead,
    "bench": _experiments,
}
