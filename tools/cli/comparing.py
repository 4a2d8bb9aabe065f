"""Where the outputs of several frameworks differ.

Two lines are equal if their words are equal and their numbers are within a
tolerance. Integers are compared exactly, and times not at all.
"""

import math
import re
from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from itertools import islice
from typing import Any, NamedTuple

from xdevice.tools.course.texts import with_devices_spelled_alike, without_times

_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?!\w|\.\w)")


class Same(NamedTuple):
    """A line that all outputs have; ``close`` says that some have it with small differences."""

    line: str
    close: bool = False

    def as_json(self) -> dict[str, Any]:
        return self._asdict()


class Group(NamedTuple):
    """Frameworks whose outputs have the same lines at a place; there may be no lines."""

    names: tuple[str, ...]
    lines: tuple[str, ...]


class Differ(NamedTuple):
    """The different lines between two common ones."""

    groups: tuple[Group, ...]

    def as_json(self) -> dict[str, Any]:
        groups = [{"backends": list(names), "lines": list(lines)} for names, lines in self.groups]
        return {"differ": groups}


class _Line(NamedTuple):
    number: int  # of the lines that are equal to it: see `_Numbering`
    text: str


def compare(
    outputs: Mapping[str, str], tolerance: float = 1e-5, normalize: bool = False
) -> list[Same | Differ]:
    """The unified view of the outputs, in their order."""
    numbering = _Numbering(tolerance)
    lines_of: dict[str, list[_Line]] = {}
    for name, output in outputs.items():
        texts: list[str] = []
        if output:
            texts = output.removesuffix("\n").split("\n")
        if normalize:
            texts = [with_devices_spelled_alike(text) for text in texts]
        lines_of[name] = [_Line(numbering.number_of(text), text) for text in texts]
    numbers = [[line.number for line in lines] for lines in lines_of.values()]
    view: list[Same | Differ] = []
    for number in _common(numbers):
        lines_before: dict[str, list[_Line]] = {}
        common_texts: list[str] = []
        for name, lines in lines_of.items():
            position = next(i for i, line in enumerate(lines) if line.number == number)
            common_texts.append(lines[position].text)
            lines_before[name] = lines[:position]
            lines_of[name] = lines[position + 1 :]
        view += _between(lines_before)
        view.append(Same(common_texts[0], close=len(set(common_texts)) > 1))
    view += _between(lines_of)
    return view


class _Representative(NamedTuple):
    """The first line of those that are equal, if it has numbers; sorted by its first number."""

    first_number: float
    line_number: int
    numbers: tuple[str, ...]


class _Numbering:
    """Numbers lines: equal ones get the same number, which is that of the first of them."""

    def __init__(self, tolerance: float) -> None:
        # Equal numbers differ by at most one of these.
        self.relative = tolerance
        self.absolute = tolerance / 1000
        self._exact: dict[tuple[str, tuple[str, ...]], int] = {}
        self._representatives: dict[str, list[_Representative]] = {}  # by the words of their lines

    def number_of(self, line: str) -> int:
        line = without_times(line)
        numbers = tuple(_NUMBER.findall(line))
        words = " ".join(_NUMBER.sub("\0", line).split())
        line_number = self._exact.get((words, numbers))
        if line_number is None and numbers:
            line_number = self._number_of_close_line(words, numbers)
        if line_number is None:
            line_number = len(self._exact)
            if numbers:
                new = _Representative(_first(numbers), line_number, numbers)
                insort(self._representatives.setdefault(words, []), new)
        return self._exact.setdefault((words, numbers), line_number)

    def _number_of_close_line(self, words: str, numbers: tuple[str, ...]) -> int | None:
        first = _first(numbers)
        reach = 2 * self.relative * abs(first) + self.absolute
        candidates = self._representatives.get(words, [])
        start = bisect_left(candidates, (first - reach,))
        for candidate in islice(candidates, start, None):
            if candidate.first_number > first + reach:
                break
            if all(map(self._equal, numbers, candidate.numbers)):
                return candidate.line_number
        return None

    def _equal(self, a: str, b: str) -> bool:
        if a == b:
            return True
        if a.lstrip("+-").isdigit() and b.lstrip("+-").isdigit():
            return a.lstrip("+") == b.lstrip("+")
        return math.isclose(float(a), float(b), rel_tol=self.relative, abs_tol=self.absolute)


def _first(numbers: tuple[str, ...]) -> float:
    return min(max(float(numbers[0]), -1e300), 1e300)  # adding to it does not overflow


def _common(sequences: Sequence[list[int]]) -> list[int]:
    """A long sequence that is part of each of these, in order."""
    common = sequences[0] if sequences else []
    for other in sequences[1:]:
        shorter = min(len(common), len(other))
        start = next((i for i in range(shorter) if common[i] != other[i]), shorter)
        matcher = SequenceMatcher(None, common[start:], other[start:], autojunk=False)
        longer = common[:start]
        for block in matcher.get_matching_blocks():
            longer += common[start + block.a : start + block.a + block.size]
        common = longer
    return common


def _between(lines_of: Mapping[str, list[_Line]]) -> list[Same | Differ]:
    """The view of the lines between two common ones: line by line if all have equally many."""
    if len({len(lines) for lines in lines_of.values()}) > 1:
        return [_differ(lines_of)]
    view: list[Same | Differ] = []
    for row in zip(*lines_of.values(), strict=True):
        if len({line.number for line in row}) == 1:  # common, too, but in another order
            view.append(Same(row[0].text, close=len({line.text for line in row}) > 1))
        else:
            view.append(_differ({name: [line] for name, line in zip(lines_of, row, strict=True)}))
    return view


def _differ(lines_of: Mapping[str, list[_Line]]) -> Differ:
    """The lines by the frameworks that have them."""
    names_of: dict[tuple[int, ...], list[str]] = {}
    for name, lines in lines_of.items():
        names_of.setdefault(tuple(line.number for line in lines), []).append(name)
    groups = [
        Group(tuple(names), tuple(line.text for line in lines_of[names[0]]))
        for names in names_of.values()
    ]
    return Differ(tuple(groups))
