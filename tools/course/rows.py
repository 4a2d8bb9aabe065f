"""The rows of a chapter: what came of a cell under each framework, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from xdevice.tools.course.chapters import Cell, Chapter
from xdevice.tools.course.compare import Difference, difference, numbers_differ, worst
from xdevice.tools.course.outcomes import Outcome
from xdevice.tools.course.running import TabRun
from xdevice.tools.course.series import Series, are_comparable, judged
from xdevice.tools.course.values import Values, cannot_be_compared, values_of

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
    "beyond": "numbers further apart than seeds explain",
    "failed": "fails",
    "not run": "not run",
}
"""What can be said of a row, from the best to the worst."""

_ORDER = list(VERDICTS)
_WORDS = 6  # of a text, where it begins to differ from another, that are shown
_CHARACTERS = 60  # of these words


class Row(NamedTuple):
    """The cells of several tabs that stand for each other, and what came of them."""

    number: int
    cells: dict[str, Cell]  # by tab
    outcomes: dict[str, Outcome]
    verdict: str
    note: str = ""

    @property
    def heading(self) -> str:
        return next(iter(self.cells.values())).heading


class _Verdict(NamedTuple):
    verdict: str
    note: str = ""


def rows_of(chapter: Chapter, runs: Sequence[TabRun]) -> list[Row]:
    """The rows of the runs, with what can be said of each. Runs with other seeds follow."""
    first_runs = {run.tab: run for run in runs if run.seed == 0}
    rows: list[Row] = []
    for number in sorted({cell.row for run in first_runs.values() for cell in run.cells}):
        cells = {
            tab: cell for tab, run in first_runs.items() for cell in run.cells if cell.row == number
        }
        outcomes = {tab: first_runs[tab].outcome_of_row[number] for tab in cells}
        repeated = {
            tab: [run.outcome_of_row[number] for run in runs if _has(run, tab, number)]
            for tab in cells
        }
        verdict = _verdict(outcomes, repeated)
        rows.append(Row(number, cells, outcomes, verdict.verdict, verdict.note))
    return rows


def open_rows(rows: Sequence[Row]) -> list[Row]:
    """The rows whose numbers differ, so that runs with other seeds can tell more."""
    return [row for row in rows if row.verdict == "numbers"]


def _has(run: TabRun, tab: str, number: int) -> bool:
    """Whether the tab's run, with whichever seed, ran the cell of that row."""
    return run.tab == tab and number in run.outcome_of_row and run.outcome_of_row[number].ran


def _verdict(
    outcomes: Mapping[str, Outcome], repeated: Mapping[str, Sequence[Outcome]]
) -> _Verdict:
    failed = [tab for tab, outcome in outcomes.items() if outcome.failed]
    missing = [tab for tab, outcome in outcomes.items() if outcome.state in ("stopped", "not run")]
    if failed or missing:
        note = f"under {', '.join(failed or missing)}"
        others = {tab: outcome for tab, outcome in outcomes.items() if outcome.ran}
        if len(others) > 1:
            note += f"; under the others: {VERDICTS[_verdict(others, repeated).verdict]}"
        return _Verdict("failed" if failed else "not run", note)
    if not any(outcome.text or outcome.curves or outcome.pictures for outcome in outcomes.values()):
        return _Verdict("silent")
    if len(outcomes) < 2:
        return _Verdict("alone")
    values = {
        tab: [values_of(outcome, tab) for outcome in [first, *repeated[tab][1:]]]
        for tab, first in outcomes.items()
    }
    verdicts = [_between(a, b, values[a], values[b]) for a, b in combinations(outcomes, 2)]
    return max(verdicts, key=lambda item: _ORDER.index(item.verdict))


def _between(a: str, b: str, values_a: Sequence[Values], values_b: Sequence[Values]) -> _Verdict:
    """What can be said of what two tabs print, with each seed."""
    verdict = _between_texts(values_a[0], values_b[0])
    note = f"{a} and {b}"
    if verdict.note:
        note = f"{note}: {verdict.note}"
    if verdict.verdict == "text":
        return _Verdict("text", note)
    if verdict.verdict != "numbers":
        return verdict
    series = [[each.series for each in values] for values in (values_a, values_b)]
    seeds = min(map(len, series))
    comparable = all(are_comparable(series[0][0], run) for runs in series for run in runs)
    if seeds < 2 or not comparable:
        return _Verdict("numbers", note)
    judgement = judged(series[0][:seeds], series[1][:seeds])
    beyond = "beyond" if judgement.is_beyond_seeds else "seeds"
    sizes = f"t {judgement.t:.3g}, limit {judgement.limit:.3g}"
    return _Verdict(beyond, f"{a} and {b}: {judgement.note} ({sizes})")


def _between_texts(a: Values, b: Values) -> _Verdict:
    """What can be said of the first run of two tabs."""
    apart = difference(a.text, b.text)
    if apart.cause == "name":
        apart = Difference("same")
    has_curves = any(series.is_curve for series in [*a.series, *b.series])
    if apart.cause not in ("text", "numbers") and not has_curves:
        return _Verdict(apart.cause)
    reason = cannot_be_compared(a, b)
    if reason or a.are_none:
        return _Verdict("text", reason or _where_they_differ(a.text, b.text))
    numbers = worst(_values_differ(x, y) for x, y in zip(a.series, b.series, strict=True))
    if numbers.cause == "numbers":
        return _Verdict("numbers")
    if apart.cause == "text":
        return _Verdict("words")
    return _Verdict(worst([apart, numbers]).cause)


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
    scale = max(map(abs, b.values), default=0.0)
    return worst(
        numbers_differ(x, y, a.unit, b.unit, 1e-6 * scale)
        for x, y in zip(a.values, b.values, strict=True)
        if x != y and str(x) != str(y)
    )
