"""Sort the cells of a chapter by why they print something else than on a real GPU."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import tomllib
from chapters import Cell, reaches

from xdevice.tools.course.failures import NETWORK, NO_NAME, assigned, loaded
from xdevice.tools.course.texts import NUMBER, Difference, difference, is_time, normalized

EXPLAINED = Path(__file__).with_name("explained.toml")
CAUSES = {
    "same": "the same",
    "name": "name",
    "digits": "last digits",
    "times": "times",
    "memory": "memory",
    "random": "random",
    "version": "version",
    "documented": "documented",
    "data": "data",
    "not run": "not run",
    "ours": "ours",
}
"""From the best to the worst, with the heads of the page's columns."""
CLOCKS = re.compile(
    r"\btime\.|\bdatetime\.|perf_counter|Timer|\btimer\b|timeit|elapsed|benchmark|\btokens/s"
)
IDENTITY = re.compile(r"\b\d{12,15}\b")
"""What ``id()`` returns: an address."""
MEASURES_MEMORY = re.compile(r"memory|nbytes|bytes_in_use|MiB|GiB")
KEYS = re.compile(r"\bget_key\(")
"""The course's JAX draws its keys in turn, so that a cell that failed leaves later ones other keys."""
SEEDS = re.compile(r"\b(?:manual_seed|set_random_seed|set_seed|random\.seed)\(")
DOWNLOADS = re.compile(
    rf"{NETWORK.pattern}"
    r"|No module named '(?:tensorflow_datasets|datasets|transformers|gymnasium|gym|tiktoken|tokenizers|sentencepiece"
    r"|gpytorch|syne_tune)'"
)

NOTEBOOK_NEEDS = re.compile(
    rf"{DOWNLOADS.pattern}|ModuleNotFoundError|FileNotFoundError|magic function `%"
    r"|IProgress not found"
)
"""A notebook may need any package, and files that are not beside it."""
_OVERWRITTEN = re.compile(r"[^\n]*\r(?!\n)|(?:[^\n\x08]*\x08)+")
"""What a line showed before a progress bar wrote over it."""


class Result(NamedTuple):
    """What came of a cell: its cause, how much its numbers differ, and in which words it is explained."""

    cell: str
    cause: str
    amount: float = 0.0
    words: str = ""
    here: str = ""
    there: str = ""
    failed: bool = False


class Explained(NamedTuple):
    """A line of explained.toml: differences that are known, by tab, cell, and what is printed or raised."""

    cause: str
    words: str
    tabs: list[str]
    cell: re.Pattern[str]
    printed: re.Pattern[str]
    code: re.Pattern[str]
    replace: dict[str, str]

    def fits(self, tab: str, cell: str, printed: str, code: str) -> bool:
        return (
            tab in self.tabs
            and self.cell.search(cell) is not None
            and self.printed.search(printed) is not None
            and self.code.search(code) is not None
        )


def explained(path: Path = EXPLAINED) -> list[Explained]:
    """The known differences; a cause that the page has no column for is refused."""
    found = []
    for words, line in tomllib.loads(path.read_text(encoding="utf-8")).items():
        if line["cause"] not in CAUSES:
            raise SystemExit(f"{path.name}: {line['cause']!r} is not among {', '.join(CAUSES)}")
        expressions = (re.compile(line.get(key, "")) for key in ("cell", "printed", "code"))
        replace = line.get("replace", {})
        found.append(Explained(line["cause"], words, line["tabs"], *expressions, replace))
    return found


def shown(text: str) -> str:
    """The text without what was written over."""
    return _OVERWRITTEN.sub("", text.replace("\r\n", "\n").rstrip("\r"))


def used(cell: Cell) -> set[str]:
    """The names that a cell uses and does not assign itself."""
    return loaded(cell.code) - assigned(cell.code)


def given(code: str) -> set[str]:
    """The names that a cell gives to calls for their effects: a model to ``train(model)``."""
    calls = [statement.value for statement in parsed(code).body if isinstance(statement, ast.Expr)]
    values = [
        value
        for call in calls
        if isinstance(call, ast.Call)
        for value in (*call.args, *(keyword.value for keyword in call.keywords))
    ]
    return {value.id for value in values if isinstance(value, ast.Name)}


def parsed(code: str) -> ast.Module:
    """The cell's syntax; that of an empty one if it is not Python."""
    try:
        return ast.parse(code)
    except SyntaxError:
        return ast.Module([], [])


def names_a_time(text: str) -> bool:
    """Whether a number has a unit of time: then those that have none are not times."""
    return any(is_time(text, each.start(), each.end()) for each in NUMBER.finditer(text))


def agree(here: str, there: str, known: list[Explained]) -> bool:
    """Whether two texts are the same, to the last digits, without the differences that are known."""
    for each in known:
        for expression, text in each.replace.items():
            here, there = re.sub(expression, text, here), re.sub(expression, text, there)
    return difference(here, there).cause in ("same", "name", "digits")


Outcomes = Mapping[str, Mapping[str, Any]]
"""What came of each cell in one run: its text and its error."""


class Chapter:
    """The cells of a chapter under one tab, what they were recorded to print, and what several runs printed.

    In the runs after the first other seeds were set before the first cell: what they print otherwise depends on a clock
    or on random numbers that the chapter does not seed.
    """

    def __init__(
        self,
        tab: str,
        cells: list[Cell],
        recorded: Mapping[str, str],
        known: list[Explained],
        needs: re.Pattern[str] = DOWNLOADS,
    ) -> None:
        self.tab, self.cells, self.recorded, self.known = tab, cells, recorded, known
        self.needs = needs
        self.code = reaches(cells)

    def results(self, first: Outcomes, *others: Outcomes) -> list[Result]:
        """The result of each recorded cell."""
        found: dict[str, Result] = {}
        for cell in self.cells:
            if cell.name in self.recorded:
                found[cell.name] = self.result(cell, first, others, found)
        return list(found.values())

    def result(
        self,
        cell: Cell,
        first: Outcomes,
        others: Sequence[Outcomes],
        before: dict[str, Result],
    ) -> Result:
        outcome, there = first.get(cell.name), shown(self.recorded[cell.name])
        if outcome is None:
            return Result(cell.name, "not run", there=there)
        if outcome["error"]:
            apart = difference(outcome["error"], there)
            if there == f"{outcome['error'].partition(':')[0]}: ignored":  # all that Colab keeps
                apart = Difference("same")
            if apart.cause in ("same", "name", "digits"):  # the error was recorded
                return Result(cell.name, apart.cause, apart.amount, "", outcome["error"], there)
            cause, words = self.of_an_error(cell, outcome["error"], before)
            return Result(cell.name, cause, 0.0, words, outcome["error"], there, failed=True)
        here = shown(outcome["text"])
        if "id(" in cell.code:
            here, there = IDENTITY.sub("address", here), IDENTITY.sub("address", there)
        apart = difference(here, there)
        if apart.cause not in ("text", "numbers"):
            return Result(cell.name, apart.cause, apart.amount, "", here, there)
        texts = {normalized(shown(run.get(cell.name, outcome)["text"])) for run in others}
        varies = bool(texts - {normalized(here)})
        cause, words = self.of_a_text(cell, here, there, varies)
        if cause == "ours":
            cause, words = self.of_a_failed_cell(cell, used(cell), before)
        if cause == "random":
            cause, words = self.of_a_failed_seed(cell, before)
        if cause == "ours" and KEYS.search(self.code[cell.name]):
            cause, words = self.of_failed_keys(before)
        return Result(cell.name, cause, apart.amount * (cause != "memory"), words, here, there)

    def of_an_error(self, cell: Cell, error: str, before: Mapping[str, Result]) -> tuple[str, str]:
        """Why a cell raised what it did not raise there: its own reason, or a failed cell's that it uses."""
        if self.needs.search(error):
            return "data", ""
        if words := self.told(cell, error, ""):
            return words
        if name := NO_NAME.search(error):
            return self.of_a_failed_cell(cell, {name[1]}, before)
        return self.of_a_failed_cell(cell, used(cell), before)

    def of_a_text(self, cell: Cell, here: str, there: str, varies: bool) -> tuple[str, str]:
        """Why a cell printed another text."""
        code = self.code[cell.name]
        if words := self.told(cell, here, there):
            return words
        if MEASURES_MEMORY.search(code) and MEASURES_MEMORY.search(there):
            return "memory", ""
        if varies:
            is_clock = CLOCKS.search(code) and not names_a_time(there)
            return ("times" if is_clock else "random"), ""
        return "ours", ""

    def of_a_failed_cell(
        self, cell: Cell, names: set[str], before: Mapping[str, Result]
    ) -> tuple[str, str]:
        """The cause of an earlier cell that failed, and was the last to assign, or would have used, these names."""
        for earlier in reversed(self.cells[: self.cells.index(cell)]):
            result, hit = before.get(earlier.name), names & assigned(earlier.code)
            if result and result.failed and (hit or names & given(earlier.code)):
                return result.cause, result.words
            if result:
                names = names - hit
        return "ours", ""

    def of_a_failed_seed(self, cell: Cell, before: Mapping[str, Result]) -> tuple[str, str]:
        """The cause of the last cell that sets a seed, if it failed; else the chapter sets none."""
        for earlier in reversed(self.cells[: self.cells.index(cell)]):
            if SEEDS.search(earlier.code):
                result = before.get(earlier.name)
                return (result.cause, result.words) if result and result.failed else ("random", "")
        return "random", ""

    def of_failed_keys(self, before: dict[str, Result]) -> tuple[str, str]:
        """The cause of the last failed cell that would have drawn keys."""
        for result in reversed(before.values()):
            if result.failed and KEYS.search(self.code[result.cell]):
                return result.cause, result.words
        return "ours", ""

    def told(self, cell: Cell, here: str, there: str) -> tuple[str, str] | None:
        """What explains the difference: one line of explained.toml, or several that replace parts of the outputs."""
        code = self.code[cell.name]
        known = [
            each for each in self.known if each.fits(self.tab, cell.name, f"{here}\n{there}", code)
        ]
        for each in known:
            if not each.replace or agree(here, there, [each]):
                return each.cause, each.words
        replacing = sorted(known, key=lambda each: list(CAUSES).index(each.cause))
        if replacing and agree(here, there, replacing):
            return replacing[-1].cause, replacing[-1].words
        return None
