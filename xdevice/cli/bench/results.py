"""The results of the processes of ``xdevice bench``, as tables and as JSON."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from xdevice.cli.bench.figures import unit_of
from xdevice.cli.probe import failure
from xdevice.kit.units import duration, size
from xdevice.launcher.children import Child
from xdevice.launcher.terminal import table

Answer = dict[str, Any]


def read(file: Path) -> list[Answer]:
    """The results of a process so far; a line that it had not finished when it crashed is left out."""
    try:
        lines = file.read_text(encoding="utf-8").split("\n")[:-1]
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in lines]


def progress(told: Sequence[Answer]) -> tuple[int, str]:
    """How many experiments are done, and what runs now."""
    if not told:
        return 0, "importing the framework"
    done = sum(1 for answer in told if answer.keys() & {"done", "skipped"} or ("error" in answer and len(answer) > 1))
    last = told[-1]
    return done, f"{last['experiment']}: {last['working']}" if "working" in last else last.get("experiment", "")


def answer(child: Child, told: Sequence[Answer], names: Sequence[str]) -> Answer:
    """One framework's part of the report."""
    found: Answer = {"name": child.name, "status": "ok", "version": None, "devices": [], "error": None}
    experiments: dict[str, Answer] = {}
    for each in told:
        if "about" in each:
            found.update(each["about"])
        elif "experiment" in each:
            _note(experiments.setdefault(each["experiment"], _empty(each)), each)
        else:
            found["error"] = each["error"]
    if child.status != "ok":
        found["status"] = child.status
        told_why = found["error"] or any(experiment["error"] for experiment in experiments.values())
        if not told_why:
            found["error"] = _last_line(child)
    found["experiments"] = [experiments[name] for name in names if name in experiments]
    return found


def _empty(each: Answer) -> Answer:
    head = {"name": each["experiment"], "title": each["title"], "rows": []}
    return {**head, "skipped": None, "busy": None, "error": None}


def _note(experiment: Answer, each: Answer) -> None:
    if "row" in each:
        experiment["rows"].append(each["row"])
    for key in ("skipped", "busy", "error"):
        experiment[key] = each.get(key, experiment[key])


def _last_line(child: Child) -> str:
    if child.status in ("timed out", "stopped"):
        return f"{child.status} after {duration(child.seconds)}"
    return failure(child)


def catalogue(titles: Mapping[str, str]) -> Table:
    found = table("experiment", "what is compared")
    for row in titles.items():
        found.add_row(*row)
    return found


def rendered(found: Sequence[Answer]) -> Iterator[RenderableType]:
    """A table for each framework, or the reason why it has none."""
    for i, framework in enumerate(found):
        if i:
            yield ""
        yield Text(" ".join([framework["name"], framework["version"] or ""]).strip() + _where(framework), style="bold")
        if any(experiment["rows"] for experiment in framework["experiments"]):
            yield _table(framework["experiments"])
        for experiment in framework["experiments"]:
            if experiment["skipped"]:
                yield Text(f"– {experiment['name']} is skipped: {experiment['skipped']}", style="dim")
            if experiment["busy"]:
                yield Text(f"! {experiment['name']}: {experiment['busy']}", style="yellow")
            if experiment["error"]:
                yield Text(f"✗ {experiment['name']}: {experiment['error']}", style="red")
        if framework["error"]:
            yield Text(f"✗ {framework['name']}: {framework['error']}", style="red")


def _where(framework: Answer) -> str:
    """The devices by name, for example ``, gpu:0 is virtual GPU 0``."""
    return "".join(f", {device['device']} is {device.get('name') or 'nameless'}" for device in framework["devices"])


def _table(experiments: Sequence[Answer]) -> Table:
    figures = ("times", "time each", "quartiles", "ratio to CPU", "bytes moved")
    made = table("experiment", *figures, right=figures)
    for experiment in experiments:
        if experiment["rows"]:
            made.add_row(Text(f"{experiment['name']}: {experiment['title']}", style="bold"))
        for row in experiment["rows"]:
            each, ratio = _times(row["seconds_each"]), f"{row['ratio_to_cpu']:.2f} ×"
            moved = size(row["bytes_moved"]) if row["bytes_moved"] else "–"
            spread = _times(row["seconds_low"], row["seconds_high"])
            made.add_row(f"  {row['label']}", str(row["times"]), each, spread, ratio, moved)
    return made


def _times(*seconds: float) -> str:
    unit, name = unit_of(seconds[-1])
    return " to ".join(f"{each / unit:.3g}" for each in seconds) + f" {name}"
