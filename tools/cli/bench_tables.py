"""The results of ``xdevice bench`` as tables."""

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from xdevice.tools.cli.probe import Answer
from xdevice.tools.launcher.terminal import table
from xdevice.units import size

_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


def tables(results: Sequence[Answer]) -> Iterator[RenderableType]:
    """A table for each framework, or the reason why it has none."""
    for number, result in enumerate(results):
        if number > 0:
            yield ""
        yield Text(_heading(result), style="bold")
        if any(experiment["rows"] for experiment in result["experiments"]):
            yield _table(result["experiments"])
        for experiment in result["experiments"]:
            yield from _remarks(experiment)
        if result["error"]:
            yield Text(f"✗ {result['name']}: {result['error']}", style="red")


def _heading(result: Answer) -> str:
    """The framework with its devices, such as ``torch 2.13.0, gpu:0 is virtual GPU 0``."""
    devices = [
        f"{device['device']} is {device.get('name') or 'nameless'}" for device in result["devices"]
    ]
    return ", ".join([name_with_version(result), *devices])


def name_with_version(result: Answer) -> str:
    return f"{result['name']} {result['version'] or ''}".strip()


def _remarks(experiment: Answer) -> Iterator[Text]:
    name = experiment["name"]
    if experiment["skipped"]:
        yield Text(f"– {name} is skipped: {experiment['skipped']}", style="dim")
    if experiment["busy"]:
        yield Text(f"! {name}: {experiment['busy']}", style="yellow")
    if experiment["error"]:
        yield Text(f"✗ {name}: {experiment['error']}", style="red")


def _table(experiments: Sequence[Answer]) -> Table:
    columns = ("times", "time each", "quartiles", "ratio to CPU", "bytes moved")
    new_table = table("experiment", *columns, right=columns)
    for experiment in experiments:
        if experiment["rows"]:
            title = f"{experiment['name']}: {experiment['title']}"
            new_table.add_row(Text(title, style="bold"))
        for row in experiment["rows"]:
            new_table.add_row(
                f"  {row['label']}",
                str(row["times"]),
                _times(row["seconds_each"]),
                _times(row["seconds_low"], row["seconds_high"]),
                f"{row['ratio_to_cpu']:.2f} ×" if row["ratio_to_cpu"] else "–",
                size(row["bytes_moved"]) if row["bytes_moved"] else "–",
            )
    return new_table


def _times(*seconds: float) -> str:
    """The times in one unit, which suits the last of them."""
    unit, unit_name = unit_of(seconds[-1])
    return " to ".join(f"{time / unit:.3g}" for time in seconds) + f" {unit_name}"


def unit_of(seconds: float) -> tuple[float, str]:
    """The largest unit that is not longer than the time, else microseconds."""
    return next((unit for unit in _UNITS if seconds >= unit[0]), _UNITS[-1])
