"""The table of `overhead.py`, its verdict against the budget, and the same as JSON."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import quantiles
from typing import Any

from contenders import CONTENDERS, NATIVE, PEERS, QUESTIONS

LEGEND = """\
Ratios to the framework's own call: of the least times of all rounds ± half the distance between
the quartiles of the rounds' ratios. A dash: the library does not support that framework, or has no
such call."""

DISTRIBUTIONS = {
    "tensorflow": ("tensorflow", "tensorflow-cpu"),
    "paddle": ("paddlepaddle", "paddlepaddle-gpu"),
}


@dataclass(frozen=True)
class Result:
    """The time of one contender for one question; quartiles of its ratio to the native call.

    Times are in nanoseconds.
    """

    backend: str
    question: str
    contender: str
    rounds: int
    ns: float
    """The median."""
    least: float
    low: float | None
    middle: float | None
    high: float | None


@dataclass(frozen=True)
class Verdict:
    """A budget of one question, and the ratio that is compared with it."""

    question: str
    backend: str
    against: str
    limit: float
    ratio: float | None
    """``None`` if the contender that the budget names has no figure."""

    def __str__(self) -> str:
        if self.ratio is None:
            return f"no {self.against} under {self.backend}"
        verdict = "met" if self.ratio <= self.limit else "missed"
        return f"{self.backend} {self.ratio:.3g}, {verdict} (at most {self.limit:g})"


def quartiles_of_ratio(times: list[float], base: list[float] | None) -> list[float] | list[None]:
    """The quartiles of the ratios within each round, so that a slow round has no effect."""
    if base is None:
        return [None, None, None]
    return quantiles([a / b for a, b in zip(times, base, strict=True)], n=4, method="inclusive")


def show(results: list[Result], missing: dict[str, str], markdown: bool) -> str:
    """The table, the verdict on each budget, and what is missing, as text or in Markdown."""
    if markdown:
        tables = [_markdown(_comparison(results))]
        tables += [_markdown(rows) for rows in _peers(results)]
        return "\n\n".join([*tables, _machine(results)])
    judged = "\n".join(_judgements(results))
    reasons = "\n".join(f"no figure for {name}: {reason}" for name, reason in missing.items())
    paragraphs = [_text(list(_rows(results))), LEGEND, judged, reasons, _machine(results)]
    return "\n\n".join(paragraph for paragraph in paragraphs if paragraph)


def _comparison(results: list[Result]) -> list[list[str]]:
    """xdevice's ratios to the native call, with a column for each framework.

    A figure beyond a budget is in bold.
    """
    backends = list(dict.fromkeys(result.backend for result in results))
    result_of = {(result.backend, result.question, result.contender): result for result in results}
    missed = {
        (verdict.backend, verdict.question)
        for verdict in verdicts(results)
        if verdict.ratio is not None and verdict.ratio > verdict.limit
    }
    rows = [["", *backends, "budget"]]
    for question in QUESTIONS:
        cells: list[str] = []
        for backend in backends:
            native, xdevice = (
                result_of.get((backend, question.title, contender))
                for contender in ("native", "xdevice")
            )
            cell = _cell(xdevice, native)
            cells.append(f"**{cell}**" if (backend, question.title) in missed else cell)
        if any(cell != "–" for cell in cells):
            budgets = "; ".join(map(str, question.budgets))
            rows.append([question.title, *cells, budgets])
    return rows


def _peers(results: list[Result]) -> Iterator[list[list[str]]]:
    """A table for each framework that another library supports, with the native call's time."""
    for backend in dict.fromkeys(result.backend for result in results):
        found = {
            (result.question, result.contender): result
            for result in results
            if result.backend == backend
        }
        peers = [peer for peer in PEERS if any(contender == peer for _, contender in found)]
        if not peers:
            continue
        rows = [[f"under {backend}", "native, ns", "xdevice", *peers]]
        for question in QUESTIONS:
            native = found.get((question.title, "native"))
            others = [found.get((question.title, peer)) for peer in peers]
            if native and any(others):
                row_results = [found.get((question.title, "xdevice")), *others]
                cells = [_cell(result, native) for result in row_results]
                rows.append([question.title, f"{native.least:,.0f}", *cells])
        yield rows


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
        "verdicts": [asdict(verdict) for verdict in verdicts(results)],
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
            native_time = "–" if native is None else f"{native.least:,.0f}"
            cells = [_cell(result, native) for result in other_results]
            if native or any(other_results):
                yield [backend, question.title, native_time, *cells]


def _cell(result: Result | None, native: Result | None) -> str:
    if result is None:
        return "–"
    if native is None or result.low is None or result.high is None:
        return f"{result.least:,.0f} ns"
    ratio = result.least / native.least
    digits = 2 if ratio < 100 else 0
    return f"{ratio:,.{digits}f} ± {(result.high - result.low) / 2:,.{digits}f}"


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
    ruler = ["---"] + ["---:"] * (len(rows[0]) - 1)
    return "\n".join("| " + " | ".join(row) + " |" for row in [rows[0], ruler, *rows[1:]])


def _judgements(results: list[Result]) -> Iterator[str]:
    """One line for each budget, with the verdict under each framework."""
    groups: dict[tuple[str, str], list[Verdict]] = {}
    for verdict in verdicts(results):
        groups.setdefault((verdict.question, verdict.against), []).append(verdict)
    for (question, against), group in groups.items():
        yield f"budget, {question}, × {against}: {'; '.join(map(str, group))}"


def verdicts(results: list[Result]) -> Iterator[Verdict]:
    """Every budget of every question that was measured, under each framework."""
    least_of = {
        (result.question, result.backend, result.contender): result.least for result in results
    }
    budgets_of = {question.title: question.budgets for question in QUESTIONS}
    for (title, backend, contender), least in least_of.items():
        if contender != "xdevice":
            continue
        for budget in budgets_of[title]:
            against = budget.against
            if against in PEERS and backend not in PEERS[against].frameworks:
                continue
            base = least_of.get((title, backend, against))
            ratio = None if base is None else least / base
            yield Verdict(title, backend, against, budget.under(backend), ratio)


def exceeded(results: list[Result], factor: float) -> Iterator[Verdict]:
    """The verdicts whose ratio is more than so many times the limit."""
    for verdict in verdicts(results):
        if verdict.ratio is not None and verdict.ratio > factor * verdict.limit:
            yield verdict


def recorded_ratios(file: Path) -> dict[tuple[str, str], float]:
    """The ratios to the native call in the first table of a page, by question and framework."""
    ratio_of: dict[tuple[str, str], float] = {}
    head: list[str] = []
    for line in file.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip(" *") for cell in line.split("|")[1:-1]]
        if not head and "torch" in cells:
            head = cells
        elif head and not cells:
            break  # the end of the table
        for framework, cell in zip(head[1:], cells[1:], strict=False):
            ratio, plus_minus, _ = cell.partition(" ± ")
            if plus_minus:
                ratio_of[cells[0], framework] = float(ratio.replace(",", ""))
    return ratio_of


def grown(
    results: list[Result], ratio_of: dict[tuple[str, str], float], factor: float
) -> Iterator[str]:
    """A sentence for each ratio to the native call that is so many times the recorded one."""
    least_of = {
        (result.question, result.backend, result.contender): result.least for result in results
    }
    for (question, backend), recorded in ratio_of.items():
        native = least_of.get((question, backend, "native"))
        least = least_of.get((question, backend, "xdevice"))
        # a table has two digits after the point
        if native and least and least / native > factor * max(recorded, 0.05):
            yield f"{question} under {backend}: {least / native:.2f}, recorded are {recorded:.2f}"


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
