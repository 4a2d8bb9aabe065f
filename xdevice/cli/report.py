"""The result of a run, as tables and as JSON, and where outputs differ.

Two lines are equal if their words are equal and their numbers are within a
tolerance. Integers are compared exactly.
"""

import math
import re
import shlex
from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import islice
from typing import Any, NamedTuple

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from xdevice.device import parse
from xdevice.errors import DeviceSpellingError
from xdevice.kit.units import duration, size
from xdevice.launcher.children import Child
from xdevice.launcher.output_buffer import Line
from xdevice.launcher.terminal import counted, ending, printable, signal_name, table

COMPARED_LINES = 2000  # of each output; at worst, aligning two takes the square of this number

_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?!\w|\.\w)")
_DEVICE = re.compile(r"(?<![\w.-])[A-Za-z/][\w/:]*(?:\([^()\s]*\))?(?![\w-])")
# The parser of devices takes any word for a kind of device; in outputs, only these are.
_KINDS = frozenset({"cpu", "gpu", "tpu"})
_COLOURS = ("cyan", "magenta", "yellow", "green", "blue", "red")


class Run:
    """A child process that has ended, and its output."""

    def __init__(self, child: Child) -> None:
        self.child = child
        self.printed = child.printed()
        stdout, stderr, self.cut = child.output()
        self.stdout = stdout.decode(errors="replace")
        self.stderr = stderr.decode(errors="replace")
        self.binary = _is_binary(stdout, self.cut)

    def as_json(self) -> dict[str, Any]:
        child = self.child
        return {
            "backend": child.name,
            "status": child.status,
            "exit_status": child.exit_status,
            "signal": signal_name(child.exit_status),
            "seconds": round(child.seconds, 3),
            "peak_memory": child.peak_memory,
            "stdout": self.stdout,
            "stderr": self.stderr,
            "cut": self.cut,
            "binary": self.binary,
        }

    def compared(self) -> str:
        """The lines that are compared. If there are more, `cut` becomes true."""
        lines = printable(self.stdout).split("\n")
        self.cut = self.cut or len(lines) > COMPARED_LINES + 1
        return "\n".join(lines[:COMPARED_LINES])


def _is_binary(output: bytes, is_cut: bool) -> bool:
    """Whether the output is not UTF-8 text."""
    if b"\0" in output:
        return True
    try:
        output.decode()
    except UnicodeDecodeError as error:
        is_cut_character = is_cut and error.start > len(output) - 4
        return not is_cut_character
    return False


class Report:
    """All runs, and the unified view of the outputs of those that succeeded."""

    def __init__(
        self, script: str, args: list[str], runs: list[Run], tolerance: float, normalize: bool
    ) -> None:
        self.script = script
        self.args = args
        self.runs = runs
        self.tolerance = tolerance
        self.normalize = normalize
        outputs = {run.child.name: run.compared() for run in runs if run.child.status == "ok"}
        self.compared = list(outputs)
        self.view = compare(outputs, tolerance, normalize)
        self.agree = not any(isinstance(part, Differ) for part in self.view)

    @property
    def names(self) -> str:
        """The frameworks whose outputs are compared, as words: ``torch, jax and numpy``."""
        if len(self.compared) < 2:
            return "".join(self.compared)
        return f"{', '.join(self.compared[:-1])} and {self.compared[-1]}"


def as_json(report: Report, interrupted: bool) -> dict[str, Any]:
    """The report as JSON can hold it; the keys are stable."""
    return {
        "script": report.script,
        "args": report.args,
        "interrupted": interrupted,
        "tolerance": report.tolerance,
        "normalize": report.normalize,
        "runs": [run.as_json() for run in report.runs],
        "compared": report.compared,
        "agree": report.agree if report.compared else None,
        "output": [part.as_json() for part in report.view],
    }


def rendered(report: Report) -> Iterator[RenderableType]:
    """The report for people: how each run ended, the outputs, and those of failed runs."""
    yield _table(report.runs)
    if report.compared and report.view:
        yield ""
        yield Text(_headline(report), style="bold")
        yield from _notes(report)
        yield ""
        yield _unified(report)
    elif report.compared:
        verb = "print"
        if len(report.compared) == 1:
            verb = "prints"
        yield Text(f"\n{report.names} {verb} nothing", style="bold")
    for run in report.runs:
        if run.child.status not in ("ok", "stopped"):
            yield from _transcript(run)


def _table(runs: list[Run]) -> Table:
    rows = table(
        "framework", "result", "wall time", "peak memory", right=("wall time", "peak memory")
    )
    for run in runs:
        child = run.child
        if child.status == "ok":
            name = Text(f"✓ {child.name}", style="green")
            result = Text("exit 0", style="green")
        else:
            name = Text(f"✗ {child.name}", style="red")
            result = Text(ending(child), style="red")
        wall_time = "–"
        peak_memory = "–"
        if child.seconds > 0:  # it was started
            wall_time = duration(child.seconds)
            peak_memory = size(child.peak_memory)
        rows.add_row(name, result, wall_time, peak_memory)
    return rows


def _transcript(run: Run) -> Iterator[RenderableType]:
    """The first and the last lines that a run has printed, on both streams, in order."""
    first, number_left_out, last = run.printed
    ended = f"\n{run.child.name}: {ending(run.child)}"
    if not any(line.text.strip() for line in (*first, *last)):
        yield Text(f"{ended}; it has printed nothing", style="bold red")
        return
    yield Text(f"{ended}; it has printed this:", style="bold red")
    yield from map(_transcript_line, first)
    if number_left_out:
        yield Text(f"  … {_lines_are(number_left_out)} left out here", style="dim")
    yield from map(_transcript_line, last)


def _transcript_line(line: Line) -> Text:
    text = printable(line.text.decode(errors="replace"))
    return Text(f"  {text}".rstrip(), style="red" if line.is_error else "")


def _lines_are(number: int) -> str:
    verb = "is" if number == 1 else "are"
    return f"{counted(number, 'line')} {verb}"


def _headline(report: Report) -> str:
    if len(report.compared) == 1:
        return f"{shlex.join([report.script, *report.args])} prints under {report.names}"
    if report.agree:
        return f"{report.names} agree"
    common = sum(isinstance(part, Same) for part in report.view)
    places = counted(len(report.view) - common, "place")
    return f"{report.names} differ in {places}; {_lines_are(common)} the same everywhere"


def _notes(report: Report) -> Iterator[Text]:
    if any(isinstance(part, Same) and part.close for part in report.view):
        note = f"≈ the same but for spaces and numbers within {report.tolerance:g}"
        yield Text(note, style="dim")
    for run in report.runs:
        name = run.child.name
        if name not in report.compared:
            continue
        if run.cut:
            yield Text(f"{name} prints more than is shown and compared here", style="dim")
        if run.binary:
            note = f"{name} prints bytes that are not text (UTF-8); they are shown as � and ␀"
            yield Text(note, style="dim")


def _unified(report: Report) -> Table:
    """Labels on the left, lines on the right; a common line has no label."""
    view = Table.grid(padding=(0, 1))
    view.add_column(no_wrap=True, justify="right")
    view.add_column(no_wrap=True)
    view.add_column(overflow="fold")
    for part in report.view:
        if isinstance(part, Same):
            sign = "≈" if part.close else ""
            view.add_row("", Text(sign, style="dim"), Text(part.line))
            continue
        for i, group in enumerate(part.groups):
            style = _COLOURS[i % len(_COLOURS)]
            texts = [Text(line, style=style) for line in group.lines]
            label = _label(group.names, report.compared)
            for text in texts or [Text("(nothing)", style="dim")]:
                view.add_row(Text(label, style=style), Text("│", style=style), text)
                label = ""
    return view


def _label(names: Sequence[str], all_names: Sequence[str]) -> str:
    missing = [name for name in all_names if name not in names]
    if len(names) > 2 and len(missing) == 1:
        return f"all but {missing[0]}"
    return ", ".join(names)


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


def with_devices_spelled_alike(text: str) -> str:
    """The text with every device in it spelled ``gpu:0``, whichever framework wrote it."""
    return _DEVICE.sub(lambda match: _respelled(match[0]), text)


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


def _respelled(token: str) -> str:
    try:
        device = parse(token)
    except DeviceSpellingError:
        head, bracket, tail = token.partition("(")
        if not bracket:
            return token
        return _respelled(head) + bracket + with_devices_spelled_alike(tail)
    if device.kind not in _KINDS:
        return token
    return str(device)
