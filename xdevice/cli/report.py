"""The result of a run, as tables and as JSON."""

import shlex
from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from xdevice.cli.compare import Differ, Same, compare
from xdevice.kit.units import duration, size
from xdevice.launcher.children import Child
from xdevice.launcher.terminal import ending, printable, signal_name, table

COMPARED_LINES = 2000
"""Lines of each output that are compared: aligning takes the square of it at worst."""

_COLOURS = ("cyan", "magenta", "yellow", "green", "blue", "red")


class Run:
    """A child that has ended, and what it has printed."""

    def __init__(self, child: Child) -> None:
        self.child, self.printed = child, child.printed()
        stdout, stderr, self.cut = child.output()
        self.stdout, self.stderr = stdout.decode(errors="replace"), stderr.decode(errors="replace")
        self.binary = not _is_text(stdout, self.cut)

    def compared(self) -> str:
        """The lines that are compared; `cut` is true from now on if there are more."""
        lines = printable(self.stdout).split("\n")
        self.cut = self.cut or len(lines) > COMPARED_LINES + 1
        return "\n".join(lines[:COMPARED_LINES])


class Report:
    """All runs, and the unified view of the outputs of those that succeeded."""

    def __init__(self, script: str, args: list[str], runs: list[Run], tolerance: float, normalize: bool) -> None:
        self.script, self.args, self.runs, self.tolerance, self.normalize = script, args, runs, tolerance, normalize
        outputs = {run.child.name: run.compared() for run in runs if run.child.status == "ok"}
        self.compared, self.view = list(outputs), compare(outputs, tolerance, normalize)
        self.agree = not any(isinstance(part, Differ) for part in self.view)


def as_json(report: Report, interrupted: bool) -> dict[str, Any]:
    """The report as JSON can hold it; the keys are stable."""
    asked = {"script": report.script, "args": report.args, "interrupted": interrupted, "tolerance": report.tolerance}
    runs = [_run_as_json(run) for run in report.runs]
    agreement = {"compared": report.compared, "agree": report.agree if report.compared else None}
    output = [
        part._asdict()
        if isinstance(part, Same)
        else {"differ": [{"backends": list(names), "lines": list(lines)} for names, lines in part.groups]}
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
        yield Text(f"\n{_them(report)} {'prints' if len(report.compared) == 1 else 'print'} nothing", style="bold")
    for run in report.runs:
        if run.child.status not in ("ok", "stopped"):
            yield from _transcript(run)


def _run_as_json(run: Run) -> dict[str, Any]:
    child = run.child
    ended = {"status": child.status, "exit_status": child.exit_status, "signal": signal_name(child.exit_status)}
    used = {"seconds": round(child.seconds, 3), "peak_memory": child.peak_memory}
    printed = {"stdout": run.stdout, "stderr": run.stderr, "cut": run.cut, "binary": run.binary}
    return {"backend": child.name, **ended, **used, **printed}


def _table(runs: list[Run]) -> Table:
    found = table("framework", "result", "wall time", "peak memory", right=("wall time", "peak memory"))
    for child in (run.child for run in runs):
        style, sign = ("green", "✓") if child.status == "ok" else ("red", "✗")
        used = (duration(child.seconds), size(child.peak_memory)) if child.seconds > 0 else ("–", "–")
        found.add_row(Text(f"{sign} {child.name}", style=style), Text(_result(child), style=style), *used)
    return found


def _result(child: Child) -> str:
    return "exit 0" if child.status == "ok" else ending(child)


def _transcript(run: Run) -> Iterator[RenderableType]:
    """What it has printed on both streams, in order, without what is between the first lines and the last."""
    first, left_out, last = run.printed
    said = any(line.text.strip() for line in (*first, *last))
    heading = f"\n{run.child.name}: {_result(run.child)}; it has printed {'this:' if said else 'nothing'}"
    yield Text(heading, style="bold red")
    for lines, between in ((first, left_out), (last, 0)) if said else ():
        for line in lines:
            text = f"  {printable(line.text.decode(errors='replace'))}".rstrip()
            yield Text(text, style="red" if line.is_error else "")
        if between:
            yield Text(f"  … {between} {'line is' if between == 1 else 'lines are'} left out here", style="dim")


def _headline(report: Report) -> str:
    lines = sum(isinstance(part, Same) for part in report.view)
    differ = len(report.view) - lines
    if len(report.compared) == 1:
        return f"{shlex.join([report.script, *report.args])} prints under {report.compared[0]}"
    if report.agree:
        return f"{_them(report)} agree"
    places = "1 place" if differ == 1 else f"{differ} places"
    return f"{_them(report)} differ in {places}; {lines} {'line is' if lines == 1 else 'lines are'} the same everywhere"


def _notes(report: Report) -> Iterator[Text]:
    if any(isinstance(part, Same) and part.close for part in report.view):
        yield Text(f"≈ the same but for spaces and numbers within {report.tolerance:g}", style="dim")
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
            label = f"all but {others[0]}" if len(names) > 2 and len(others) == 1 else ", ".join(names)
            for line in lines or (None,):
                text = Text("(nothing)", style="dim") if line is None else Text(line, style=style)
                view.add_row(Text(label, style=style), Text("│", style=style), text)
                label = ""
    return view


def _them(report: Report) -> str:
    names = report.compared
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _is_text(data: bytes, cut: bool) -> bool:
    """Whether it is UTF-8 without NUL; a character that is cut at the end is allowed."""
    try:
        return b"\0" not in data.decode().encode()
    except UnicodeDecodeError as error:
        return cut and error.start > len(data) - 4 and b"\0" not in data
