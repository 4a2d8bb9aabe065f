"""Compare what a cell prints with what it printed before, or elsewhere."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import NamedTuple

NUMBER = re.compile(
    r"(?<![\w.])[-+]?(?:\d{1,3}(?:,\d{3})+(?![\d,])(?:\.\d+)?|\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
    r"|(?<!\w)[-+]?(?:nan|inf)(?!\w)"
)
CLOSE = 1e-3
"""The largest relative difference that counts as the last digits."""
COARSE = 0.02
"""The largest one if only the last printed digit differs, by one."""
NOISE = 1e-6
"""What lies below this part of the largest number of a cell is rounding noise."""
CAUSES = ("same", "name", "digits", "times", "memory", "numbers", "text")
"""The causes of a difference, from the best to the worst."""

# A terminal's colours, movements of the cursor, links and titles.
TERMINAL = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))")
_ADDRESS = re.compile(r"\b(?:0x[0-9a-f]{6,}|1[234]\d{13}|9[34]\d{12})\b")
_LINE_OF_FILE = re.compile(r'File "[^"]*", line \d+')
_TEMPORARY = re.compile(r"\btmp[a-z0-9_]{8}\b")  # a name by Python's tempfile
_SET = re.compile(r"\{([^{}:]+)\}")
_TIME_UNIT = re.compile(
    r"\s*(?:[µμun]s|ms|s|secs?|seconds?|min|mins|minutes?|hours?|h|秒|分钟|[GT]FLOP\S*|[GT]?flops?"
    r"|\S+/s(?:ec)?)(?![\w])"
)
# Of %timeit: "462 ns ± 21 ns per loop (mean ± std. dev. of 7 runs, 1,000 loops each)".
_LOOPS = re.compile(r"\s*loops? each\b")
# A clock's time, or one as long as several units: "10:02:33", "1min 2s", "1 h 3 min".
_CLOCK = re.compile(r"\b\d\d?:\d\d:\d\d(?:\.\d+)?\b")
_TIMES = re.compile(rf"{_CLOCK.pattern}|(?:(?:{NUMBER.pattern})(?:{_TIME_UNIT.pattern})\s*)+")
_MEMORY_UNIT = re.compile(r"\s*(?:[KMG]i?B|bytes)(?![\w/])")
# A virtual GPU's name says that it is one; frameworks write NVIDIA or leave it out.
_IN_GPU_NAME = re.compile(
    r" \(virtual GPU(?: \d+)?: xdevice, on the CPU\)|\bNVIDIA (?=GeForce|Tesla|RTX|[A-Z]\d+)"
)


class Difference(NamedTuple):
    """Why two texts differ, and by how much: a relative difference, or a ratio for memory."""

    cause: str
    amount: float = 0.0


SAME = Difference("same")


def plain(text: str) -> str:
    """The text without what does not count.

    Colours, spaces, the lines of files, the names of temporary ones and the
    order of sets do not count.
    Addresses are numbered, so that it counts whether two are the same.
    """
    addresses: dict[str, str] = {}
    text = _LINE_OF_FILE.sub("File", TERMINAL.sub("", text))
    text = _TEMPORARY.sub("tmp", text)
    text = _ADDRESS.sub(lambda match: addresses.setdefault(match[0], f"0x{len(addresses)}"), text)
    text = _SET.sub(lambda match: f"{{{', '.join(sorted(match[1].split(', ')))}}}", text)
    return " ".join(text.split())


def difference(text: str, reference: str) -> Difference:
    """The difference between a text and the one that is expected, as far as the texts tell.

    The cause is ``text`` if the words differ, and ``numbers`` if numbers differ
    that are neither times nor amounts of memory.
    """
    text, reference = plain(text), plain(reference)
    if text == reference:
        return SAME
    unnamed, unnamed_reference = _IN_GPU_NAME.sub("", text), _IN_GPU_NAME.sub("", reference)
    if unnamed == unnamed_reference:
        return Difference("name")
    times: list[Difference] = []
    if _words(unnamed) != _words(unnamed_reference):
        # a time of 59 s, and one of 1 min 2 s
        times = [Difference("times")]
        unnamed, unnamed_reference = _without_times(unnamed), _without_times(unnamed_reference)
    if _words(unnamed) != _words(unnamed_reference):
        return Difference("text")
    differences = [*times, *_numbers_apart(unnamed, unnamed_reference)]
    if (unnamed, unnamed_reference) != (text, reference):
        differences.append(Difference("name"))
    return worst(differences)


def worst(differences: Iterable[Difference]) -> Difference:
    """The worst cause of several, with the largest amount of that cause."""
    differences = list(differences)
    cause = max((item.cause for item in differences), key=CAUSES.index, default="same")
    amounts = [item.amount for item in differences if item.cause == cause]
    if cause == "memory":
        return Difference(cause, max(amounts, key=lambda ratio: abs(math.log(ratio or 1e-9))))
    return Difference(cause, max(amounts, default=0.0))


def numbers_differ(a: float, b: float, unit_a: float, unit_b: float, noise: float) -> Difference:
    """The difference of two numbers; a unit is one of the last printed digit, 0 of an integer."""
    if not (math.isfinite(a) and math.isfinite(b)):
        return Difference("numbers", math.inf)
    distance = abs(a - b)
    relative = distance / max(abs(a), abs(b))
    last = max(unit_a, unit_b)
    if not last:  # integers, which are counts
        return Difference("numbers", relative)
    is_last_digit = distance <= 1.01 * last and relative <= COARSE
    if relative <= CLOSE or is_last_digit:
        return Difference("digits", relative)
    if distance <= noise:
        return Difference("digits")
    return Difference("numbers", relative)


def is_time(text: str, start: int, end: int) -> bool:
    """Whether the number that stands there is a time, a speed, or one of a clock's numbers."""
    if _TIME_UNIT.match(text, end) or _LOOPS.match(text, end):
        return True
    around = _CLOCK.search(text, max(0, start - 6), end + 10)
    return around is not None and around.start() <= start and end <= around.end()


def is_time_or_memory(text: str, start: int, end: int) -> bool:
    """Whether the number that stands there is a time, a speed or an amount of memory."""
    return is_time(text, start, end) or bool(_MEMORY_UNIT.match(text, end))


def value_of(number: str) -> float:
    return float(number.replace(",", ""))


def unit_of(number: str) -> float:
    """One unit of the last printed digit of a fraction, 0 of an integer."""
    mantissa, _, exponent = number.lower().partition("e")
    digits = len(mantissa.partition(".")[2])
    if "." not in mantissa:
        return 0.0
    return float(10.0 ** (int(exponent or 0) - digits))


def _without_times(text: str) -> str:
    return _TIMES.sub("(time) ", text)


def _words(text: str) -> str:
    """The text without its numbers and spaces."""
    return re.sub(r"\s", "", NUMBER.sub("#", text))


def _numbers_apart(text: str, reference: str) -> list[Difference]:
    """The difference of item pair of numbers that are not equal."""
    pairs = list(zip(NUMBER.finditer(text), NUMBER.finditer(reference), strict=True))
    values = [abs(value_of(expected[0])) for _, expected in pairs]
    noise = NOISE * max(filter(math.isfinite, values), default=0.0)
    return [
        _apart(number, expected, noise)
        for number, expected in pairs
        if number[0] != expected[0] and value_of(number[0]) != value_of(expected[0])
    ]


def _apart(number: re.Match[str], expected: re.Match[str], noise: float) -> Difference:
    a, b = value_of(number[0]), value_of(expected[0])
    if is_time(expected.string, expected.start(), expected.end()):
        return Difference("times")
    if b and _MEMORY_UNIT.match(expected.string, expected.end()):
        return Difference("memory", a / b)
    return numbers_differ(a, b, unit_of(number[0]), unit_of(expected[0]), noise)
