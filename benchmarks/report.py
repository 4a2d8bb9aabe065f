"""The table of `overhead.py`, its verdict against the budget, and the same as JSON."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from statistics import quantiles
from typing import Any

from contenders import CONTENDERS, NATIVE, PEERS, QUESTIONS

LEGEND = """\
Ratios to the framework's own call in the same round: median ± half the distance between the quartiles.
A dash: the library does not serve that framework, or has no such call."""

DISTRIBUTIONS = {
    "tensorflow": ("tensorflow", "tensorflow-cpu"),
    "paddle": ("paddlepaddle", "paddlepaddle-gpu"),
}


@dataclass(frozen=True)
class Result:
    """What one contender took for one question; quartiles of its ratio to the native call."""

    backend: str
    question: str
    contender: str
    rounds: int
    ns: float
    low: float | None
    ratio: float | None
    high: float | None
    against_budget: float | None
    """The ratio to the contender that the question's budget names."""


def quartiles_of_ratio(times: list[float], base: list[float] | None) -> list[float] | list[None]:
    """The quartiles of the ratios within each round, so that a slow round has no effect."""
    if base is None:
        return [None, None, None]
    return quantiles([a / b for a, b in zip(times, base, strict=True)], n=4, method="inclusive")


def show(results: list[Result], missing: dict[str, str], markdown: bool) -> str:
    """The table, the verdict on each budget, and what is missing, as text."""
    mark = "- " if markdown else ""
    parts = [
        (_markdown if markdown else _text)(list(_rows(results))),
        LEGEND,
        "\n".join(f"{mark}{line}" for line in _verdicts(results)),
        "\n".join(f"{mark}no figure for {who}: {why}" for who, why in missing.items()),
        f"{platform.python_implementation()} {platform.python_version()}, {os.cpu_count()} CPUs; "
        + ", ".join(f"{name} {number}" for name, number in _versions(results).items()),
    ]
    return "\n\n".join(part for part in parts if part)


def as_json(results: list[Result], missing: dict[str, str]) -> dict[str, Any]:
    """All measurements, and the machine."""
    machine = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
    }
    return {
        "machine": machine,
        "versions": _versions(results),
        "budget": {q.title: {"limit": q.limit, "against": q.against} for q in QUESTIONS if q.limit},
        "results": [asdict(result) for result in results],
        "missing": missing,
    }


def _rows(results: list[Result]) -> Iterable[list[str]]:
    yield ["framework", "question", "native, ns", *CONTENDERS[1:]]
    cells = {(r.backend, r.question, r.contender): r for r in results}
    for backend in dict.fromkeys(r.backend for r in results):
        for question in QUESTIONS:
            row = [cells.get((backend, question.title, contender)) for contender in CONTENDERS]
            native = f"{row[0].ns:,.0f}" if row[0] else "–"
            yield [backend, question.title, native, *map(_cell, row[1:])]


def _cell(result: Result | None) -> str:
    if result is None:
        return "–"
    if result.ratio is None or result.low is None or result.high is None:
        return f"{result.ns:,.0f} ns"
    digits = 2 if result.ratio < 100 else 0
    return f"{result.ratio:,.{digits}f} ± {(result.high - result.low) / 2:,.{digits}f}"


def _text(rows: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    pad = [str.ljust, str.ljust] + [str.rjust] * (len(widths) - 2)
    return "\n".join(
        "  ".join(p(c, w) for p, c, w in zip(pad, row, widths, strict=True)).rstrip()
        for row in rows
    )


def _markdown(rows: list[list[str]]) -> str:
    ruler = ["---", "---"] + ["---:"] * (len(rows[0]) - 2)
    return "\n".join("| " + " | ".join(row) + " |" for row in [rows[0], ruler, *rows[1:]])


def _verdicts(results: list[Result]) -> Iterable[str]:
    for question in QUESTIONS:
        if question.limit is None:
            continue
        ours = [r for r in results if (r.question, r.contender) == (question.title, "xdevice")]
        judged = [
            _verdict(question.limit, r.backend, r.against_budget)
            for r in ours
            if r.against_budget is not None
        ]
        alone = [r.backend for r in ours if r.against_budget is None]
        if alone:
            judged.append(f"no {question.against} under {', '.join(alone)}")
        yield f"budget, {question.title}, at most {question.limit:g} × {question.against}: {'; '.join(judged)}"


def _verdict(limit: float, backend: str, ratio: float) -> str:
    return f"{backend} {ratio:.3g}, {'met' if ratio <= limit else 'missed'} by {abs(ratio / limit - 1):.1%}"


def _versions(results: list[Result]) -> dict[str, str]:
    packages = [r.backend for r in results if r.backend in NATIVE] + [
        p.package for p in PEERS.values()
    ]
    found = {}
    for package in dict.fromkeys(packages):
        for name in DISTRIBUTIONS.get(package, (package,)):
            try:
                found[package] = version(name)
            except PackageNotFoundError:
                continue
    return found
