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
Ratios to the framework's own call in the same round: median ± half the distance between the
quartiles. A dash: the library does not support that framework, or has no such call."""

DISTRIBUTIONS = {
    "tensorflow": ("tensorflow", "tensorflow-cpu"),
    "paddle": ("paddlepaddle", "paddlepaddle-gpu"),
}


@dataclass(frozen=True)
class Result:
    """The time of one contender for one question; quartiles of its ratio to the native call."""

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
    rows = list(_rows(results))
    if markdown:
        bullet = "- "
        table = _markdown(rows)
    else:
        bullet = ""
        table = _text(rows)
    verdicts = [f"{bullet}{line}" for line in _verdicts(results)]
    reasons = [f"{bullet}no figure for {name}: {reason}" for name, reason in missing.items()]
    paragraphs = [table, LEGEND, "\n".join(verdicts), "\n".join(reasons), _machine(results)]
    return "\n\n".join(paragraph for paragraph in paragraphs if paragraph)


def _machine(results: list[Result]) -> str:
    python = f"{platform.python_implementation()} {platform.python_version()}"
    packages = [f"{name} {number}" for name, number in _versions(results).items()]
    return f"{python}, {os.cpu_count()} CPUs; {', '.join(packages)}"


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
        "budget": {
            question.title: {"limit": question.limit, "against": question.against}
            for question in QUESTIONS
            if question.limit
        },
        "results": [asdict(result) for result in results],
        "missing": missing,
    }


def _rows(results: list[Result]) -> Iterable[list[str]]:
    yield ["framework", "question", "native, ns", *CONTENDERS[1:]]
    result_of = {(result.backend, result.question, result.contender): result for result in results}
    for backend in dict.fromkeys(result.backend for result in results):
        for question in QUESTIONS:
            native, *other_results = [
                result_of.get((backend, question.title, contender)) for contender in CONTENDERS
            ]
            native_time = "–" if native is None else f"{native.ns:,.0f}"
            yield [backend, question.title, native_time, *map(_cell, other_results)]


def _cell(result: Result | None) -> str:
    if result is None:
        return "–"
    if result.ratio is None or result.low is None or result.high is None:
        return f"{result.ns:,.0f} ns"
    digits = 2 if result.ratio < 100 else 0
    return f"{result.ratio:,.{digits}f} ± {(result.high - result.low) / 2:,.{digits}f}"


def _text(rows: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines: list[str] = []
    for row in rows:
        cells = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
        for column in (0, 1):  # these are text, the others are numbers
            cells[column] = row[column].ljust(widths[column])
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _markdown(rows: list[list[str]]) -> str:
    ruler = ["---", "---"] + ["---:"] * (len(rows[0]) - 2)
    return "\n".join("| " + " | ".join(row) + " |" for row in [rows[0], ruler, *rows[1:]])


def _verdicts(results: list[Result]) -> Iterable[str]:
    for question in QUESTIONS:
        if question.limit is None:
            continue
        ratios = {
            result.backend: result.against_budget
            for result in results
            if result.question == question.title and result.contender == "xdevice"
        }
        verdicts = [
            _verdict(question.limit, backend, ratio)
            for backend, ratio in ratios.items()
            if ratio is not None
        ]
        not_compared = [backend for backend, ratio in ratios.items() if ratio is None]
        if not_compared:
            verdicts.append(f"no {question.against} under {', '.join(not_compared)}")
        budget = f"at most {question.limit:g} × {question.against}"
        yield f"budget, {question.title}, {budget}: {'; '.join(verdicts)}"


def _verdict(limit: float, backend: str, ratio: float) -> str:
    verdict = "met" if ratio <= limit else "missed"
    return f"{backend} {ratio:.3g}, {verdict} by {abs(ratio / limit - 1):.1%}"


def _versions(results: list[Result]) -> dict[str, str]:
    packages = [result.backend for result in results if result.backend in NATIVE]
    packages += [peer.package for peer in PEERS.values()]
    versions: dict[str, str] = {}
    for package in dict.fromkeys(packages):
        for distribution in DISTRIBUTIONS.get(package, (package,)):
            try:
                versions[package] = version(distribution)
            except PackageNotFoundError:
                continue
    return versions
