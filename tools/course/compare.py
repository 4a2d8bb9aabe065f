"""Compare what came of the cells under each framework, row by row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from textwrap import shorten
from typing import NamedTuple

from xdevice.tools.course.read import Cell
from xdevice.tools.course.run import Outcome, TabRun
from xdevice.tools.course.texts import (
    Difference,
    difference,
    largest_of,
    numbers_differ,
    worst,
)
from xdevice.tools.course.values import (
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
UNCHANGED = ("same", "name", "digits", "times")
_WORDS = 6  # of a text, where it begins to differ from another, that are shown
_CHARACTERS = 60  # of these words
_OF_AN_ERROR = 120  # characters that are shown beside those of other tabs


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
    raised = {tab: last_line(outcome.error) for tab, outcome in outcomes.items() if outcome.error}
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
        errors = "; ".join(f"{tab}: {_in_short(error)}" for tab, error in raised.items())
        return Verdict("one error", f"{errors}; none under {silent}")
    texts = {tab: values_of(error, (), tab).text for tab, error in raised.items()}
    for a, b in combinations(raised, 2):
        if difference(texts[a], texts[b]).cause not in UNCHANGED:
            errors = f"{a}: {_in_short(raised[a])}; {b}: {_in_short(raised[b])}"
            return Verdict("other error", errors)
    return Verdict("same")


def _in_short(error: str) -> str:
    return shorten(error, _OF_AN_ERROR, placeholder=" …")


def last_line(error: str) -> str:
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
