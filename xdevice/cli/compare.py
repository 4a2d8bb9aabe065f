"""Where outputs differ: lines equal everywhere once, differing lines by who printed them.

Two lines are equal if their words are, and their numbers are within a tolerance; whole numbers are
compared exactly. Spaces only separate.
"""

import math
import re
from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from itertools import islice, takewhile
from typing import NamedTuple

from xdevice.device import parse
from xdevice.errors import DeviceSpellingError

TOLERANCE = 1e-5
"""The largest relative difference of equal numbers; a thousandth of it is the largest absolute one."""

_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?!\w|\.\w)")
_DEVICE = re.compile(r"(?<![\w.-])[A-Za-z/][\w/:]*(?:\([^()\s]*\))?(?![\w-])")
_KINDS = frozenset({"cpu", "gpu", "tpu"})  # any word is a device's kind to the parser: not to a reader


class Same(NamedTuple):
    """A line that all have; ``close`` says that some wrote it slightly differently."""

    line: str
    close: bool = False


class Differ(NamedTuple):
    """Lines between two common ones, by who printed them; those that agree stand together."""

    groups: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]  # (names, lines), lines maybe none


def compare(outputs: Mapping[str, str], tolerance: float = TOLERANCE, normalize: bool = False) -> list[Same | Differ]:
    """The unified view of the outputs, in the order in which they were given.

    ``normalize`` takes all spellings of a device for one: ``cuda:0``, ``Place(gpu:0)`` and ``gpu(0)``.
    """
    classes, left = _Classes(tolerance), dict[str, list[_Line]]()
    for name, output in outputs.items():
        lines = output.removesuffix("\n").split("\n") if output else []
        spelled = map(with_devices_spelled_alike, lines) if normalize else lines
        left[name] = [_Line(classes.of(line), line) for line in spelled]
    view: list[Same | Differ] = []
    for mark in (*_common([[line.mark for line in lines] for lines in left.values()]), None):
        before, here = dict[str, list[_Line]](), list[str]()
        for name, lines in left.items():
            end = next((i for i, line in enumerate(lines) if line.mark == mark), len(lines))
            here += [line.text for line in lines[end : end + 1]]
            before[name], left[name] = lines[:end], lines[end + 1 :]
        view += _between(before)
        if mark is not None:
            view.append(_same(here))
    return view


class _Line(NamedTuple):
    mark: int  # the number of its class
    text: str


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
                if numbers:
                    insort(self._alike.setdefault(words, []), (_first(numbers), known, numbers))
            self._exact[words, numbers] = known
        return known

    def _close_one(self, words: str, numbers: tuple[str, ...]) -> int | None:
        first, alike = _first(numbers), self._alike.get(words, [])
        reach = 2 * self.relative * abs(first) + self.absolute
        near = takewhile(lambda one: one[0] <= first + reach, islice(alike, bisect_left(alike, (first - reach,)), None))
        return next((known for _, known, others in near if all(map(self._equal, numbers, others))), None)

    def _equal(self, a: str, b: str) -> bool:
        if a == b:
            return True
        if a.lstrip("+-").isdigit() and b.lstrip("+-").isdigit():
            return a.lstrip("+") == b.lstrip("+")
        return math.isclose(float(a), float(b), rel_tol=self.relative, abs_tol=self.absolute)


def _first(numbers: tuple[str, ...]) -> float:
    return min(max(float(numbers[0]), -1e300), 1e300)  # within what can be added to


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


def _between(before: Mapping[str, list[_Line]]) -> list[Same | Differ]:
    """What stands before the next common line: line by line where all have equally many."""
    parts = list(before.values())
    alike = len({len(lines) for lines in parts}) <= 1
    steps = [[[line] for line in row] for row in zip(*parts, strict=True)] if alike else [parts]
    found: list[Same | Differ] = []
    for step in steps:
        groups: dict[tuple[int, ...], list[tuple[str, list[_Line]]]] = {}
        for name, lines in zip(before, step, strict=True):
            groups.setdefault(tuple(line.mark for line in lines), []).append((name, lines))
        if len(groups) == 1:  # as good as a common line: only the order of the lines around it hid that
            found.append(_same([lines[0].text for lines in step]))
        else:
            named = ((tuple(name for name, _ in g), tuple(line.text for line in g[0][1])) for g in groups.values())
            found.append(Differ(tuple(named)))
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
