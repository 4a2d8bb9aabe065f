"""The result of a run, as tables and as JSON, and where outputs differ.

Two lines are equal if their words are, and their numbers are within a tolerance; whole numbers are compared exactly.
"""

import math
import re
import shlex
from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import islice, takewhile
from typing import Any, NamedTuple

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from xdevice.device import parse
from xdevice.errors import DeviceSpellingError
from xdevice.kit.units import duration, size
from xdevice.launcher.children import Child
from xdevice.launcher.terminal import ending, printable, signal_name, table

COMPARED_LINES = 2000  # of each output: aligning takes the square of it at worst

_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?!\w|\.\w)")
_DEVICE = re.compile(r"(?<![\w.-])[A-Za-z/][\w/:]*(?:\([^()\s]*\))?(?![\w-])")
_KINDS = frozenset(
    {"cpu", "gpu", "tpu"}
)  # any word is a device's kind to the parser: not to a reader
_COLOURS = ("cyan", "magenta", "yellow", "green", "blue", "red")


class Run:
    """A child that has ended, and what it has printed."""

    def __init__(self, child: Child) -> None:
        self.child, self.printed = child, child.printed()
        stdout, stderr, self.cut = child.output()
        self.stdout, self.stderr = stdout.decode(errors="replace"), stderr.decode(errors="replace")
        self.binary = b"\0" in stdout
        try:
            stdout.decode()
        except UnicodeDecodeError as error:  # a character that is cut at the end is allowed
            self.binary |= not (self.cut and error.start > len(stdout) - 4)

    def as_json(self) -> dict[str, Any]:
        child = self.child
        ended = {
            "status": child.status,
            "exit_status": child.exit_status,
            "signal": signal_name(child.exit_status),
        }
        used = {"seconds": round(child.seconds, 3), "peak_memory": child.peak_memory}
        printed = {
            "stdout": self.stdout,
            "stderr": self.stderr,
            "cut": self.cut,
            "binary": self.binary,
        }
        return {"backend": child.name, **ended, **used, **printed}

    def compared(self) -> str:
        """The lines that are compared; `cut` is true from now on if there are more."""
        lines = printable(self.stdout).split("\n")
        self.cut = self.cut or len(lines) > COMPARED_LINES + 1
        return "\n".join(lines[:COMPARED_LINES])


class Report:
    """All runs, and the unified view of the outputs of those that succeeded."""

    def __init__(
        self, script: str, args: list[str], runs: list[Run], tolerance: float, normalize: bool
    ) -> None:
        self.script, self.args, self.runs, self.tolerance, self.normalize = (
            script,
            args,
            runs,
            tolerance,
            normalize,
        )
        outputs = {run.child.name: run.compared() for run in runs if run.child.status == "ok"}
        self.compared, self.view = list(outputs), compare(outputs, tolerance, normalize)
        self.agree = not any(isinstance(part, Differ) for part in self.view)
        self.them = " and ".join(filter(None, (", ".join(self.compared[:-1]), *self.compared[-1:])))


def as_json(report: Report, interrupted: bool) -> dict[str, Any]:
    """The report as JSON can hold it; the keys are stable."""
    asked = {
        "script": report.script,
        "args": report.args,
        "interrupted": interrupted,
        "tolerance": report.tolerance,
    }
    runs = [run.as_json() for run in report.runs]
    agreement = {"compared": report.compared, "agree": report.agree if report.compared else None}
    output = [
        part._asdict()
        if isinstance(part, Same)
        else {
            "differ": [
                {"backends": list(names), "lines": list(lines)} for names, lines in part.groups
            ]
        }
        for part in report.view
    ]
    return {**asked, "normalize": report.normalize, "runs": runs, **agreement, "output": output}


def rendered(report: Report) -> Iterator[RenderableType]:
    """The report for people: how each run ended, the outputs, and what failed runs printed."""
    yield _table(report.runs)
    if report.compared and report.view:
        yield ""
        yield Text(_headline(report), style="bold")
        yield from _notes(report)
        yield ""
        yield _unified(report)
    elif report.compared:
        yield Text(
            f"\n{report.them} {'prints' if len(report.compared) == 1 else 'print'} nothing",
            style="bold",
        )
    for run in report.runs:
        if run.child.status not in ("ok", "stopped"):
            yield from _transcript(run)


def _table(runs: list[Run]) -> Table:
    found = table(
        "framework", "result", "wall time", "peak memory", right=("wall time", "peak memory")
    )
    for child in (run.child for run in runs):
        style, sign, result = (
            ("green", "✓", "exit 0") if child.status == "ok" else ("red", "✗", ending(child))
        )
        used = (
            (duration(child.seconds), size(child.peak_memory)) if child.seconds > 0 else ("–", "–")
        )
        found.add_row(Text(f"{sign} {child.name}", style=style), Text(result, style=style), *used)
    return found


def _transcript(run: Run) -> Iterator[RenderableType]:
    """What it has printed on both streams, in order, without what is between the first lines and the last."""
    first, left_out, last = run.printed
    said = any(line.text.strip() for line in (*first, *last))
    heading = (
        f"\n{run.child.name}: {ending(run.child)}; it has printed {'this:' if said else 'nothing'}"
    )
    yield Text(heading, style="bold red")
    for lines, between in ((first, left_out), (last, 0)) if said else ():
        for line in lines:
            text = f"  {printable(line.text.decode(errors='replace'))}".rstrip()
            yield Text(text, style="red" if line.is_error else "")
        if between:
            yield Text(
                f"  … {between} {'line is' if between == 1 else 'lines are'} left out here",
                style="dim",
            )


def _headline(report: Report) -> str:
    lines = sum(isinstance(part, Same) for part in report.view)
    differ = len(report.view) - lines
    if len(report.compared) == 1:
        return f"{shlex.join([report.script, *report.args])} prints under {report.them}"
    if report.agree:
        return f"{report.them} agree"
    places = "1 place" if differ == 1 else f"{differ} places"
    return f"{report.them} differ in {places}; {lines} {'line is' if lines == 1 else 'lines are'} the same everywhere"


def _notes(report: Report) -> Iterator[Text]:
    if any(isinstance(part, Same) and part.close for part in report.view):
        yield Text(
            f"≈ the same but for spaces and numbers within {report.tolerance:g}", style="dim"
        )
    for run in (run for run in report.runs if run.child.name in report.compared):
        if run.cut:
            yield Text(f"{run.child.name} prints more than is shown and compared here", style="dim")
        if run.binary:
            said = f"{run.child.name} prints bytes that are not text (UTF-8); they are shown as � and ␀"
            yield Text(said, style="dim")


def _unified(report: Report) -> Table:
    """Labels left, lines right: a common line has no label."""
    view = Table.grid(padding=(0, 1))
    view.add_column(no_wrap=True, justify="right")
    view.add_column(no_wrap=True)
    view.add_column(overflow="fold")
    for part in report.view:
        if isinstance(part, Same):
            view.add_row("", Text("≈" if part.close else "", style="dim"), Text(part.line))
            continue
        for i, (names, lines) in enumerate(part.groups):
            style = _COLOURS[i % len(_COLOURS)]
            others = [name for name in report.compared if name not in names]
            label = (
                f"all but {others[0]}" if len(names) > 2 and len(others) == 1 else ", ".join(names)
            )
            for line in lines or (None,):
                text = Text("(nothing)", style="dim") if line is None else Text(line, style=style)
                view.add_row(Text(label, style=style), Text("│", style=style), text)
                label = ""
    return view


class Same(NamedTuple):
    """A line that all have; ``close`` says that some wrote it slightly differently."""

    line: str
    close: bool = False


class Differ(NamedTuple):
    """Lines between two common ones, by who printed them; those that agree stand together."""

    groups: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]  # (names, lines), lines maybe none


class _Line(NamedTuple):
    mark: int  # the number of its class
    text: str


def compare(
    outputs: Mapping[str, str], tolerance: float = 1e-5, normalize: bool = False
) -> list[Same | Differ]:
    """The unified view of the outputs, in the order in which they were given."""
    classes, left = _Classes(tolerance), dict[str, list[_Line]]()
    for name, output in outputs.items():
        written = output.removesuffix("\n").split("\n") if output else []
        spelled = map(with_devices_spelled_alike, written) if normalize else written
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
            view.append(Same(here[0], close=len({*here}) > 1))
    return view


def with_devices_spelled_alike(text: str) -> str:
    """The text with every device in it spelled ``gpu:0``, whichever framework wrote it."""
    return _DEVICE.sub(lambda match: _respelled(match[0]), text)


class _Classes:
    """Numbers lines so that equal ones get one number: the first line of a class represents it."""

    def __init__(self, tolerance: float) -> None:
        self.relative, self.absolute = (
            tolerance,
            tolerance / 1000,
        )  # equal numbers differ by either of them at most
        self._exact: dict[tuple[str, tuple[str, ...]], int] = {}
        # by the words of a line: its representatives, sorted by their first number
        self._alike: dict[str, list[tuple[float, int, tuple[str, ...]]]] = {}

    def of(self, line: str) -> int:
        numbers = tuple(_NUMBER.findall(line))
        words = " ".join(_NUMBER.sub("\0", line).split())
        known = self._exact.get((words, numbers))
        if known is None and numbers:
            known = self._close_one(words, numbers)
        if known is None:
            known = len(self._exact)
            if numbers:
                insort(self._alike.setdefault(words, []), (_first(numbers), known, numbers))
        return self._exact.setdefault((words, numbers), known)

    def _close_one(self, words: str, numbers: tuple[str, ...]) -> int | None:
        first, alike = _first(numbers), self._alike.get(words, [])
        reach = 2 * self.relative * abs(first) + self.absolute
        near = takewhile(
            lambda one: one[0] <= first + reach,
            islice(alike, bisect_left(alike, (first - reach,)), None),
        )
        return next(
            (known for _, known, others in near if all(map(self._equal, numbers, others))), None
        )

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
        rest = [
            common[start + b.a + i] for b in matcher.get_matching_blocks() for i in range(b.size)
        ]
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
        if (
            len(groups) == 1
        ):  # as good as a common line: only the order of the lines around it hid that
            found.append(Same(step[0][0].text, close=len({lines[0].text for lines in step}) > 1))
        else:
            named = (
                (tuple(name for name, _ in g), tuple(line.text for line in g[0][1]))
                for g in groups.values()
            )
            found.append(Differ(tuple(named)))
    return found


def _respelled(token: str) -> str:
    try:
        device = parse(token)
    except DeviceSpellingError:
        head, bracket, rest = token.partition("(")
        return _respelled(head) + bracket + with_devices_spelled_alike(rest) if bracket else token
    return str(device) if device.kind in _KINDS else token
