"""Where outputs differ: lines equal everywhere once, differing lines by who printed them.

Two lines are equal if their words are, and their numbers are within a tolerance; whole numbers are
compared exactly. Spaces only separate.
"""

import math
import re
from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from xdevice.device import parse
from xdevice.errors import DeviceSpellingError

TOLERANCE = 1e-5
"""The largest relative difference of equal numbers; a thousandth of it is the largest absolute one."""

_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?!\w|\.\w)")
_DEVICE = re.compile(r"(?<![\w.-])[A-Za-z/][\w/:]*(?:\([^()\s]*\))?(?![\w-])")
_KINDS = frozenset({"cpu", "gpu", "tpu"})  # any word is a device's kind to the parser: not to a reader


@dataclass(frozen=True, slots=True)
class Same:
    """A line that all have; ``close`` says that some wrote it slightly differently."""

    line: str
    close: bool = False


@dataclass(frozen=True, slots=True)
class Differ:
    """Lines between two common ones, by who printed them; those that agree stand together."""

    groups: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]  # (names, lines), lines maybe none


def compare(outputs: Mapping[str, str], tolerance: float = TOLERANCE, normalize: bool = False) -> list[Same | Differ]:
    """The unified view of the outputs, in the order in which they were given.

    ``normalize`` takes all spellings of a device for one: ``cuda:0``, ``Place(gpu:0)`` and ``gpu(0)``.
    """
    names = list(outputs)
    lines = {name: outputs[name].removesuffix("\n").split("\n") if outputs[name] else [] for name in names}
    if normalize:
        lines = {name: [with_devices_spelled_alike(line) for line in lines[name]] for name in names}
    classes = _Classes(tolerance)
    marked = {name: [classes.of(line) for line in lines[name]] for name in names}
    common = _common([marked[name] for name in names])
    view: list[Same | Differ] = []
    at = dict.fromkeys(names, 0)
    for mark in (*common, None):
        ends = {n: len(lines[n]) if mark is None else marked[n].index(mark, at[n]) for n in names}
        view += _between(names, lines, marked, at, ends)
        if mark is not None:
            view.append(_same([lines[n][ends[n]] for n in names]))
        at = {n: ends[n] + 1 for n in names}
    return view


def with_devices_spelled_alike(text: str) -> str:
    """The text with every device in it spelled ``gpu:0``, whichever framework wrote it."""
    return _DEVICE.sub(lambda match: _respelled(match[0]), text)


class _Classes:
    """Numbers lines so that equal ones get one number: the first line of a class represents it."""

    def __init__(self, tolerance: float) -> None:
        self.relative, self.absolute = tolerance, tolerance / 1000
        self._exact: dict[tuple[str, tuple[str, ...]], int] = {}
        # by the words of a line: its representatives, sorted by their first number
        self._alike: dict[str, list[tuple[float, int, tuple[str, ...]]]] = {}

    def of(self, line: str) -> int:
        numbers = tuple(_NUMBER.findall(line))
        words = " ".join(_NUMBER.sub("\0", line).split())
        known = self._exact.get((words, numbers))
        if known is None:
            known = self._close_one(words, numbers) if numbers else None
            if known is None:
                known = len(self._exact)
                insort(self._alike.setdefault(words, []), (_first(numbers), known, numbers))
            self._exact[words, numbers] = known
        return known

    def _close_one(self, words: str, numbers: tuple[str, ...]) -> int | None:
        first, alike = _first(numbers), self._alike.get(words, [])
        reach = 2 * self.relative * abs(first) + self.absolute
        for i in range(bisect_left(alike, (first - reach,)), len(alike)):
            start, known, others = alike[i]
            if start > first + reach:
                break
            if all(self._equal(a, b) for a, b in zip(numbers, others, strict=True)):
                return known
        return None

    def _equal(self, a: str, b: str) -> bool:
        if a == b:
            return True
        if a.lstrip("+-").isdigit() and b.lstrip("+-").isdigit():
            return a.lstrip("+") == b.lstrip("+")
        return math.isclose(float(a), float(b), rel_tol=self.relative, abs_tol=self.absolute)


def _first(numbers: tuple[str, ...]) -> float:
    """The first number, within what can be added to."""
    return min(max(float(numbers[0]), -1e300), 1e300) if numbers else 0.0


def _common(sequences: Sequence[list[int]]) -> list[int]:
    """A long sequence that is part of each of these, in order."""
    common = sequences[0] if sequences else []
    for other in sequences[1:]:
        shorter = min(len(common), len(other))
        start = next((i for i in range(shorter) if common[i] != other[i]), shorter)
        matcher = SequenceMatcher(None, common[start:], other[start:], autojunk=False)
        rest = [common[start + b.a + i] for b in matcher.get_matching_blocks() for i in range(b.size)]
        common = common[:start] + rest
    return common


def _between(
    names: list[str],
    lines: Mapping[str, list[str]],
    marked: Mapping[str, list[int]],
    at: Mapping[str, int],
    ends: Mapping[str, int],
) -> list[Same | Differ]:
    """What stands before the next common line: line by line where all have equally many."""
    lengths = {ends[n] - at[n] for n in names}
    if lengths <= {0}:
        return []
    size = lengths.pop() if len(lengths) == 1 else None
    steps = [(0, None)] if size is None else [(i, i + 1) for i in range(size)]
    found: list[Same | Differ] = []
    for start, stop in steps:
        cut = {n: slice(at[n] + start, ends[n] if stop is None else at[n] + stop) for n in names}
        groups: dict[tuple[int, ...], list[str]] = {}
        for n in names:
            groups.setdefault(tuple(marked[n][cut[n]]), []).append(n)
        if len(groups) == 1:  # as good as a common line: only the order of the lines around it hid that
            found.append(_same([lines[n][cut[n]][0] for n in names]))
        else:
            found.append(Differ(tuple((tuple(g), tuple(lines[g[0]][cut[g[0]]])) for g in groups.values())))
    return found


def _same(texts: list[str]) -> Same:
    return Same(texts[0], close=any(text != texts[0] for text in texts))


def _respelled(token: str) -> str:
    try:
        device = parse(token)
    except DeviceSpellingError:
        head, bracket, rest = token.partition("(")
        return _respelled(head) + bracket + with_devices_spelled_alike(rest) if bracket else token
    return str(device) if device.kind in _KINDS else token
