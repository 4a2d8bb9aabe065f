"""Texts that cells print: spelled alike, and compared.

`difference` is symmetric in its cause, and says "same" only of texts whose
numbers are equal to the last digit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, localcontext
from typing import NamedTuple

from xdevice.device import Device, parse
from xdevice.errors import DeviceSpellingError

NUMBER = re.compile(
    r"(?<![\w.])[-+]?(?:\d{1,3}(?:,\d{3})+(?![\d,])(?:\.\d+)?|\d+\.?\d*|\.\d+)(?:[eE][-+]?\d{1,9}(?!\d))?"
    r"|(?<!\w)[-+]?(?:nan|inf)(?!\w)"
)
CLOSE = Decimal("1e-3")
"""The largest relative difference that counts as the last digits."""
COARSE = Decimal("0.02")
"""The largest one if only the last printed digit differs, by one."""
NOISE = Decimal("1e-6")
"""What lies below this part of the largest number of a cell is rounding noise."""
CAUSES = ("same", "name", "digits", "times", "memory", "numbers", "text")
"""The causes of a difference, from the best to the worst."""

# A terminal's colours, movements of the cursor, links and titles.
TERMINAL = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))")
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,}\b")
_LINE_OF_FILE = re.compile(r'File "[^"]*", line \d+')
_TEMPORARY = re.compile(r"\btmp[a-z0-9_]{8}\b")  # a name by Python's tempfile
_PROCESS = re.compile(  # a row of nvidia-smi: its number and its program
    r"^(\|\s+\d+\s+(?:N/A\s+N/A\s+)?)\d+\s+(?:[CG]\s+)?\S+(?=\s+\d+MiB\s+\|\s*$)", re.MULTILINE
)
_SET = re.compile(r"\{([^{}:]+)\}")
_TIME_UNIT = re.compile(
    r"\s*(?:[µμun]s|ms|s|secs?|seconds?|min|mins|minutes?|hours?|h|秒|分钟|[GT]FLOP\S*|[GT]?flops?"
    r"|\S+/s(?:ec)?)(?![\w])"
)
# Of %timeit: "462 ns ± 21 ns per loop (mean ± std. dev. of 7 runs, 1,000 loops each)".
_LOOPS = re.compile(r"\s*loops? each\b")
# A clock's time: "10:02:33".
_CLOCK = re.compile(r"\b\d\d?:\d\d:\d\d(?:\.\d+)?\b")
_MEMORY_UNIT = re.compile(r"\s*(?:[KMG]i?B|bytes)(?![\w/])")
# A virtual GPU's name says that it is one; frameworks write NVIDIA or leave it out.
_IN_GPU_NAME = re.compile(
    r" \(virtual GPU(?: \d+)?: xdevice, on the CPU\)|\bNVIDIA (?=GeForce|Tesla|RTX|[A-Z]\d+)"
)
_PLACEHOLDER = "\0"
"""What stands for a number among the words."""
# A printed number may be too large for a float; nothing here raises an error for it.
_EXACT = Context(prec=28, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[])


class Difference(NamedTuple):
    """Why two texts differ, and by how much: a relative difference, or a ratio for memory."""

    cause: str
    amount: float = 0.0


SAME = Difference("same")


def normalized(text: str) -> str:
    """The text without what does not count.

    Colours, spaces, the lines of files, the names of temporary ones, the
    processes that nvidia-smi lists and the order of sets do not count.
    Addresses are numbered, so that it counts whether two are the same.
    """
    addresses: dict[str, str] = {}
    text = _LINE_OF_FILE.sub("File", TERMINAL.sub("", text)).replace(_PLACEHOLDER, "")
    text = _PROCESS.sub(r"\1process", _TEMPORARY.sub("tmp", text))
    text = _ADDRESS.sub(lambda match: addresses.setdefault(match[0], f"0x_{len(addresses)}"), text)
    text = _SET.sub(lambda match: f"{{{', '.join(sorted(match[1].split(', ')))}}}", text)
    return " ".join(text.split())


def difference(text: str, reference: str) -> Difference:
    """The difference between a text and the one that is expected, as far as the texts tell.

    The cause is ``text`` if the words differ, and ``numbers`` if numbers differ
    that are neither times nor amounts of memory.
    """
    text, reference = normalized(text), normalized(reference)
    if text == reference:
        return SAME
    unnamed, unnamed_reference = _IN_GPU_NAME.sub("", text), _IN_GPU_NAME.sub("", reference)
    if unnamed == unnamed_reference:
        return Difference("name")
    differences: list[Difference] = []
    if (unnamed, unnamed_reference) != (text, reference):
        differences.append(Difference("name"))
    if _words(unnamed) != _words(unnamed_reference):
        # a time of 59 s, and one of 1 min 2 s
        differences.append(Difference("times"))
        unnamed, unnamed_reference = without_times(unnamed), without_times(unnamed_reference)
    if _words(unnamed) != _words(unnamed_reference):
        return Difference("text")
    pairs = list(zip(NUMBER.finditer(unnamed), NUMBER.finditer(unnamed_reference), strict=True))
    largest = largest_of(value_of(number[0]) for pair in pairs for number in pair)
    return worst([*differences, *(_apart(*pair, largest) for pair in pairs)])


def without_times(text: str) -> str:
    """The text with ``(time)`` for each time and its unit, also for one in several: ``1 h 3 min``."""
    text = _CLOCK.sub("(time)", text)
    parts: list[str] = []
    end = 0
    for number in NUMBER.finditer(text):
        unit = _TIME_UNIT.match(text, number.end())
        if unit:
            parts += [text[end : number.start()], "(time)"]
            end = unit.end()
    return re.sub(r"\(time\)(?:\s*\(time\))+", "(time)", "".join(parts) + text[end:])


def _words(text: str) -> str:
    """The text without its numbers and spaces."""
    return re.sub(r"\s", "", NUMBER.sub(_PLACEHOLDER, text))


def _apart(number: re.Match[str], expected: re.Match[str], largest: Decimal) -> Difference:
    """The difference of two numbers that stand at the same place of two texts."""
    a, b = value_of(number[0]), value_of(expected[0])
    if number[0] == expected[0] or a == b:
        return SAME
    if all(is_time(match.string, *match.span()) for match in (number, expected)):
        return Difference("times")
    if not (a.is_finite() and b.is_finite()):
        return Difference("numbers", math.inf)
    if a > 0 and b > 0 and _MEMORY_UNIT.match(expected.string, expected.end()):
        with localcontext(_EXACT):
            return Difference("memory", float(a / b))
    return numbers_differ(a, b, max(unit_of(number[0]), unit_of(expected[0])), largest)


def numbers_differ(a: Decimal, b: Decimal, unit: Decimal, largest: Decimal) -> Difference:
    """The difference of two numbers that are not equal.

    ``unit`` is one of the last printed digit, 0 of an integer. ``largest`` is
    the largest number beside which they stand.
    """
    if not (a.is_finite() and b.is_finite()):
        return Difference("numbers", math.inf)
    with localcontext(_EXACT):
        distance = abs(a - b)
        relative = distance / max(abs(a), abs(b))
        amount = float(relative)
        if not unit:  # integers, which are counts
            return Difference("numbers", amount)
        is_last_digit = distance <= Decimal("1.01") * unit and relative <= COARSE
        if relative <= CLOSE or is_last_digit:
            return Difference("digits", amount)
        return (
            Difference("digits") if distance <= NOISE * largest else Difference("numbers", amount)
        )


def worst(differences: Iterable[Difference]) -> Difference:
    """The worst cause of several, with the largest amount of that cause."""
    differences = list(differences)
    cause = max((item.cause for item in differences), key=CAUSES.index, default="same")
    amounts = [item.amount for item in differences if item.cause == cause]
    if cause == "memory":  # a ratio, which is 0 if it is too small for a float
        return Difference(
            cause, max(amounts, key=lambda ratio: abs(math.log(ratio)) if ratio else math.inf)
        )
    return Difference(cause, max(amounts, default=0.0))


def is_time(text: str, start: int, end: int) -> bool:
    """Whether the number that stands there is a time, a speed, or one of a clock's numbers."""
    if _TIME_UNIT.match(text, end) or _LOOPS.match(text, end):
        return True
    around = _CLOCK.search(text, max(0, start - 6), end + 10)
    return around is not None and around.start() <= start and end <= around.end()


def is_time_or_memory(text: str, start: int, end: int) -> bool:
    """Whether the number that stands there is a time, a speed or an amount of memory."""
    return is_time(text, start, end) or bool(_MEMORY_UNIT.match(text, end))


def value_of(number: str) -> Decimal:
    return Decimal(number.replace(",", ""))


def largest_of(values: Iterable[Decimal]) -> Decimal:
    """The largest of the finite ones, without its sign; 0 if there is none."""
    # `abs` would raise an error for 1e999999999
    return max((each.copy_abs() for each in values if each.is_finite()), default=Decimal(0))


def unit_of(number: str) -> Decimal:
    """One unit of the last printed digit of a fraction, 0 of an integer."""
    mantissa, _, exponent = number.lower().partition("e")
    if "." not in mantissa:
        return Decimal(0)
    return Decimal((0, (1,), int(exponent or 0) - len(mantissa.partition(".")[2])))


# ------------------------------------------------------------- spelled alike

# A word or a call; one pair of parentheses may stand inside those of the call.
_DEVICE = re.compile(r"(?<![\w.-])[A-Za-z/](?:[\w/:]*\w)?(?:\((?:[^()]|\([^()]*\))*\))?(?![\w-])")
# What frameworks print of a device that the parser of devices does not read.
_OTHER_FORMS = re.compile(
    r"(?:Logical|Physical)Device\(name='(?:/physical_device:|/device:)?(?P<tensorflow>\w+:\d+)'"
    r"[^()]*\)|<CUDA Device (?P<cupy>\d+)>"
)
# The parser of devices takes any word for a kind of device; in outputs, only these are.
_KINDS = frozenset({"cpu", "gpu", "tpu"})
_PROSE = re.compile(r"[A-Z]+|[Mm]etal|hip|rocm")  # "on the GPU", without an index

_DTYPE = re.compile(
    r"\b(?:torch|paddle|numpy|np|jnp|jax\.numpy|tf|mx)\.(?P<own>(?:bfloat|float|u?int|complex|bool)\d*)\b"
    r"|<dtype: '(?P<tensorflow>\w+)'>|\bdtype\('(?P<numpy>\w+)'\)"
    r"|<class '(?:\w+\.)*(?P<scalar>(?:bfloat|float|u?int|complex)\d+)'>"
)
_NAMES_OF_FRAMEWORKS = {
    "torch": "torch|pytorch",
    "tensorflow": "tensorflow|tf",
    "paddle": "paddle|paddlepaddle|飞桨",
    "mxnet": "mxnet|mx",
    "jax": "jax|jnp|flax",
}


def with_devices_spelled_alike(text: str, spell: Callable[[Device], str] = str) -> str:
    """The text with every device in it spelled ``gpu:0``, whichever framework wrote it."""
    text = _OTHER_FORMS.sub(lambda match: match["tensorflow"] or f"gpu:{match['cupy']}", text)
    return _DEVICE.sub(lambda match: _respelled(match[0], spell), text)


def with_dtypes_spelled_alike(text: str) -> str:
    """The text with every dtype in it spelled ``float32``."""
    return _DTYPE.sub(lambda match: next(filter(None, match.groups())), text)


def without_framework_name(text: str, framework: str) -> str:
    """The text with the framework's name, or that of a module of it, as ``FRAMEWORK``."""
    names = _NAMES_OF_FRAMEWORKS.get(framework)
    if names is None:
        return text
    return re.sub(rf"(?<![\w.])(?:{names})(?:\.\w+)*(?![\w(])", "FRAMEWORK", text, flags=re.I)


def _respelled(token: str, spell: Callable[[Device], str]) -> str:
    device = _device_named(token)
    if device is not None:
        return spell(device)
    head, bracket, tail = token.partition("(")
    if not bracket:
        return token
    return _respelled(head, spell) + bracket + with_devices_spelled_alike(tail, spell)


def _device_named(token: str) -> Device | None:
    if _PROSE.fullmatch(token):
        return None
    try:
        device = parse(token)
    except DeviceSpellingError:
        return None
    return device if device.kind in _KINDS else None
