"""Compare what a cell prints with what it printed on a real GPU."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

COLOURS = re.compile(r"\x1b\[[0-9;]*m")
ADDRESS = re.compile(r"\b(?:0x[0-9a-f]{6,}|1[234]\d{13}|9[34]\d{12})\b")
PLACE = re.compile(r'File "[^"]*", line \d+')
SET = re.compile(r"\{([^{}:]+)\}")
NUMBER = re.compile(
    r"(?<![\w.])[-+]?(?:\d{1,3}(?:,\d{3})+(?![\d,])(?:\.\d+)?|\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
    r"|(?<!\w)[-+]?(?:nan|inf)(?!\w)"
)
A_TIME = re.compile(
    r"\s*(?:[µun]s|ms|s|sec|secs|seconds?|min|[GT]FLOP\S*|[GT]?flops?|\S+/s(?:ec)?)(?![\w])"
)
MEMORY = re.compile(r"\s*(?:[KMG]i?B|bytes)(?![\w/])")
GPU_NAME = re.compile(r"(?:NVIDIA )?GeForce RTX 4090(?: \(virtual GPU \d+: xdevice, on the CPU\))?")
CLOSE = 1e-3
"""The largest relative difference that counts as the last digits."""
COARSE = 0.02
"""The largest one if only the last printed digit differs, by one."""
NOISE = 1e-6
"""What lies below this part of the largest number of a cell is rounding noise."""


class Difference(NamedTuple):
    """Why two texts differ, and by how much: a relative difference, or a ratio for memory."""

    cause: str
    amount: float = 0.0


SAME = Difference("same")


def plain(text: str) -> str:
    """The text without what does not count: colours, spaces, addresses, lines of files, the order of sets.

    Addresses are numbered, so that it counts whether two are the same.
    """
    addresses: dict[str, str] = {}
    text = PLACE.sub("File", COLOURS.sub("", text))
    text = ADDRESS.sub(lambda at: addresses.setdefault(at[0], f"0x{len(addresses)}"), text)
    text = SET.sub(lambda found: f"{{{', '.join(sorted(found[1].split(', ')))}}}", text)
    return " ".join(text.split())


def difference(here: str, there: str) -> Difference:
    """The difference between the text printed here and the recorded one, as far as the texts tell.

    The cause is ``text`` if the words differ, ``numbers`` if numbers do that are no times or amounts of memory.
    """
    here, there = plain(here), plain(there)
    if here == there:
        return SAME
    named = GPU_NAME.sub("GPU", here), GPU_NAME.sub("GPU", there)
    name = [] if named == (here, there) else [Difference("name")]
    if named[0] == named[1]:
        return Difference("name")
    if words(named[0]) != words(named[1]):
        return Difference("text")
    return worst([*name, *numbers_apart(*named)])


def words(text: str) -> str:
    """The text without its numbers and spaces."""
    return re.sub(r"\s", "", NUMBER.sub("#", text))


def numbers_apart(here: str, there: str) -> list[Difference]:
    """The difference of each pair of numbers that are not equal."""
    pairs = list(zip(NUMBER.finditer(here), NUMBER.finditer(there), strict=True))
    finite = [abs(value(b)) for _, b in pairs if math.isfinite(value(b))]
    noise = NOISE * max(finite, default=0.0)
    return [apart(a, b, noise) for a, b in pairs if value(a) != value(b) and a[0] != b[0]]


def apart(here: re.Match[str], there: re.Match[str], noise: float) -> Difference:
    a, b = value(here), value(there)
    if A_TIME.match(there.string, there.end()):
        return Difference("times")
    if MEMORY.match(there.string, there.end()) and b:
        return Difference("memory", a / b)
    if not (math.isfinite(a) and math.isfinite(b)):
        return Difference("numbers", math.inf)
    relative = abs(a - b) / max(abs(a), abs(b))
    last = max(unit(here[0]), unit(there[0]))
    if not last:  # integers, which are counts
        return Difference("numbers", relative)
    one_unit = abs(a - b) <= 1.01 * last and relative <= COARSE
    if relative <= CLOSE or one_unit or abs(a - b) <= noise:
        return Difference("digits", 0.0 if relative > CLOSE and not one_unit else relative)
    return Difference("numbers", relative)


def value(number: re.Match[str]) -> float:
    return float(number[0].replace(",", ""))


def unit(number: str) -> float:
    """One unit of the last printed digit of a fraction, 0 of an integer."""
    mantissa, _, exponent = number.lower().partition("e")
    digits = len(mantissa.partition(".")[2])
    return float(10.0 ** (int(exponent or 0) - digits)) if "." in mantissa else 0.0


def worst(found: list[Difference]) -> Difference:
    """The worst cause of several, with the largest amount of that cause."""
    order = ("same", "name", "digits", "times", "memory", "numbers")
    cause = max((each.cause for each in found), key=order.index, default="same")
    amounts = [each.amount for each in found if each.cause == cause]
    if cause == "memory":
        return Difference(cause, max(amounts, key=lambda ratio: abs(math.log(ratio or 1e-9))))
    return Difference(cause, max(amounts, default=0.0))
