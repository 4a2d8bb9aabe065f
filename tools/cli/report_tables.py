"""The result of a run as tables for people."""

import shlex
from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from xdevice.tools.cli.comparing import Same
from xdevice.tools.cli.report import Report, Run
from xdevice.tools.launcher.output_buffer import Line
from xdevice.tools.launcher.terminal import table
from xdevice.tools.launcher.texts import counted, ending, printable
from xdevice.units import duration, size

_COLOURS = ("cyan", "magenta", "yellow", "green", "blue", "red")


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
        note = f"≈ the same but for spaces, times, and numbers within {report.tolerance:g}"
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
