"""``xdevice bench``: the lessons' experiments, timed under several frameworks, one process each."""

import argparse
import json
import os
import platform
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from xdevice._version import __version__
from xdevice.cli import probe
from xdevice.cli.probe import Answer
from xdevice.device import parse
from xdevice.errors import ArgumentError
from xdevice.experiments import EXPERIMENTS, find, title
from xdevice.kit.units import duration, size
from xdevice.launcher.children import Child, run_all
from xdevice.launcher.terminal import Progress, table, write
from xdevice.machine import gpus, host

Bar = tuple[int, dict[str, Any]]  # the framework's place, and the row of the result

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#999999")
"""Okabe and Ito's, which people with any kind of colour vision tell apart, on white and on black."""

UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


def main(options: argparse.Namespace) -> int:
    if options.list:
        catalogue = table("experiment", "what is compared")
        for name, experiment in EXPERIMENTS.items():
            catalogue.add_row(name, title(experiment))
        write(catalogue)
        return 0
    names = list(dict.fromkeys(options.experiments)) or list(EXPERIMENTS)
    _check(names, options)
    chosen = probe.frameworks(options.backend)
    with tempfile.TemporaryDirectory() as folder:
        files = {framework: Path(folder, framework) for framework in chosen}
        command, work = (
            [*probe.PYTHON, "-m", "xdevice.experiments"],
            [options.device or "", str(options.scale), *names],
        )
        children = [
            Child(
                framework,
                [*command, str(file), *work],
                {**os.environ, "XDEVICE_BACKEND": framework},
            )
            for framework, file in files.items()
        ]
        # such as ``2 of 9, tiny: 10 × 10 on the CPU``
        with Progress(
            "bench", newest=lambda child: now(_read(files[child.name]), len(names))
        ) as progress:
            interrupted = run_all(
                children, 1, options.timeout, progress
            )  # one at a time, undisturbed
        found = [_answer(child, _read(files[child.name]), names) for child in children]
    write(*_rendered(found))
    if options.json:
        report = {"xdevice": __version__, "python": platform.python_version(), "platform": platform.platform(),
                  "machine": {"host": host(), **gpus()}, "scale": options.scale, "backends": found}  # fmt: skip
        options.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    if options.plot:
        for file in _plot(found, options.plot, dark=options.dark):
            print(f"drawn: {file}", file=sys.stderr)
    if interrupted:
        return 128 + interrupted
    return int(any(framework["status"] != "ok" for framework in found))


def _check(names: Sequence[str], options: argparse.Namespace) -> None:
    """Raise the errors that can be found before the work."""
    for name in names:
        find(name)
    if options.device:
        parse(options.device)
    if options.plot and options.plot.suffix not in (".png", ".svg", ".pdf"):
        raise ArgumentError(f"'{options.plot}' is not a picture; name a .png, .svg or .pdf file")
    if options.plot and find_spec("matplotlib") is None:
        raise ArgumentError("--plot needs matplotlib; pip install matplotlib")
    for file in filter(None, (options.json, options.plot)):
        if not os.path.isdir(file.parent):  # never fails, as Path.is_dir may
            raise ArgumentError(
                f"the folder '{file.parent}' of {file.name!r} does not exist; make it first"
            )
        if os.path.isdir(file):
            raise ArgumentError(f"'{file}' is a folder; give the name of a file")
        new = not os.path.exists(file)
        try:
            file.open("ab").close()  # permissions do not tell, above all for root
        except OSError as error:
            raise ArgumentError(
                f"'{file}' cannot be written: {error.strerror}; give another file"
            ) from error
        if new:
            file.unlink()


def _read(file: Path) -> list[Answer]:
    """The results of a process so far; a line that it had not finished when it crashed is left out."""
    try:
        lines = file.read_text(encoding="utf-8").split("\n")[:-1]
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in lines]


def now(told: Sequence[Answer], experiments: int) -> str:
    if not told:
        return f"0 of {experiments}, importing the framework"
    done = sum(
        1
        for answer in told
        if answer.keys() & {"done", "skipped"} or ("error" in answer and len(answer) > 1)
    )
    last = told[-1]
    working = (
        f"{last['experiment']}: {last['working']}"
        if "working" in last
        else last.get("experiment", "")
    )
    return f"{done} of {experiments}, {working}"


def _answer(child: Child, told: Sequence[Answer], names: Sequence[str]) -> Answer:
    found: Answer = {
        "name": child.name,
        "status": child.status,
        "version": None,
        "devices": [],
        "error": None,
    }
    experiments: dict[str, Answer] = {}
    for each in told:
        if "about" in each:
            found.update(each["about"])
        elif "experiment" in each:
            new = {"name": each["experiment"], "title": each["title"], "rows": list[Answer]()}
            noted = experiments.setdefault(
                each["experiment"], new | {"skipped": None, "busy": None, "error": None}
            )
            noted["rows"] += [each["row"]] if "row" in each else []
            noted.update((key, each[key]) for key in ("skipped", "busy", "error") if key in each)
        else:
            found["error"] = each["error"]
    if (
        child.status != "ok"
        and not found["error"]
        and not any(noted["error"] for noted in experiments.values())
    ):
        cut_off = child.status in ("timed out", "stopped")
        found["error"] = (
            f"{child.status} after {duration(child.seconds)}" if cut_off else probe.failure(child)
        )
    found["experiments"] = [experiments[name] for name in names if name in experiments]
    return found


def _rendered(found: Sequence[Answer]) -> Iterator[RenderableType]:
    """A table for each framework, or the reason why it has none."""
    for i, framework in enumerate(found):
        if i:
            yield ""
        # the devices by name, for example ``, gpu:0 is virtual GPU 0``
        where = (
            f", {device['device']} is {device.get('name') or 'nameless'}"
            for device in framework["devices"]
        )
        yield Text(
            f"{framework['name']} {framework['version'] or ''}".strip() + "".join(where),
            style="bold",
        )
        if any(experiment["rows"] for experiment in framework["experiments"]):
            yield _table(framework["experiments"])
        for experiment in framework["experiments"]:
            if experiment["skipped"]:
                yield Text(
                    f"– {experiment['name']} is skipped: {experiment['skipped']}", style="dim"
                )
            if experiment["busy"]:
                yield Text(f"! {experiment['name']}: {experiment['busy']}", style="yellow")
            if experiment["error"]:
                yield Text(f"✗ {experiment['name']}: {experiment['error']}", style="red")
        if framework["error"]:
            yield Text(f"✗ {framework['name']}: {framework['error']}", style="red")


def _table(experiments: Sequence[Answer]) -> Table:
    columns = ("times", "time each", "quartiles", "ratio to CPU", "bytes moved")
    made = table("experiment", *columns, right=columns)
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
    unit, name = _unit_of(seconds[-1])
    return " to ".join(f"{each / unit:.3g}" for each in seconds) + f" {name}"


def _unit_of(seconds: float) -> tuple[float, str]:
    return next((unit for unit in UNITS if seconds >= unit[0]), UNITS[-1])


def _plot(found: Sequence[Answer], file: Path, *, dark: bool) -> Iterator[Path]:
    """Draw each experiment for a slide: one into the file, several into files with their names behind its stem."""
    import matplotlib

    ground, ink = ("#1e1e1e", "#ffffff") if dark else ("#ffffff", "#1e1e1e")
    inked = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    grounds = ("figure.facecolor", "axes.facecolor", "savefig.facecolor", "legend.facecolor")
    sides = {
        "axes.spines.top": False,
        "axes.spines.right": False,
        "legend.edgecolor": ink,
        "font.size": 11,
    }
    colours = dict.fromkeys(inked, ink) | dict.fromkeys(grounds, ground)
    settings: Any = {
        **colours,
        **sides,
        "svg.fonttype": "none",
    }  # whose names are Literals in matplotlib 3.11
    panels = list(_panels(found))
    with matplotlib.rc_context(settings):
        for name, heading, bars in panels:
            into = file if len(panels) == 1 else file.with_stem(f"{file.stem}-{name}")
            _figure(found, heading, bars).savefig(into, dpi=150)
            yield into


def _panels(found: Sequence[Answer]) -> Iterator[tuple[str, str, list[Bar]]]:
    bars: dict[tuple[str, str], list[Bar]] = {}
    busy = {
        each["name"] for framework in found for each in framework["experiments"] if each["busy"]
    }
    for place, framework in enumerate(found):
        for experiment in framework["experiments"]:
            heading = experiment["name"], experiment["title"]
            for row in experiment["rows"]:
                bars.setdefault(heading, []).append((place, row))
    for (name, compared), of_it in bars.items():
        warning = "\nThe machine was too busy for exact times" if name in busy else ""
        yield name, f"{name}: {compared}{warning}", of_it


def _figure(found: Sequence[Answer], heading: str, bars: Sequence[Bar]) -> Any:
    """Times with their spread on the left, speed-ups over the first line, which is the CPU, on the right."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    labels = list(dict.fromkeys(row["label"] for _, row in bars))
    frameworks = sorted({place for place, _ in bars})
    figure: Any = Figure(
        figsize=(12, 2.2 + 0.34 * len(labels) * max(len(frameworks), 2)), layout="constrained"
    )
    figure.suptitle(heading)
    times, speeds = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
    unit, unit_name = _unit_of(max(row["seconds_each"] for _, row in bars))
    ink = times.xaxis.label.get_color()
    colours = {place: COLOURS[place % len(COLOURS)] for place in frameworks}
    height = 0.8 / len(
        frameworks
    )  # of a framework's bars: those of one label side by side, a gap to the next label's
    for place, row in bars:
        at = labels.index(row["label"]) - 0.4 + height * (frameworks.index(place) + 0.5)
        each, low, high = (row[f"seconds_{word}"] / unit for word in ("each", "low", "high"))
        ratio = row["ratio_to_cpu"]
        for axes, value, text, end in (
            (times, each, f"{each:.3g}", high),
            (speeds, ratio, f"{ratio:.2f} ×", max(ratio, 1)),  # beside the line at 1 too
        ):
            axes.barh(at, value, height * 0.9, color=colours[place])
            axes.annotate(
                text, (end, at), (4, 0), textcoords="offset points", va="center", fontsize=9
            )
        times.errorbar(
            each, at, xerr=[[each - low], [high - each]], color=ink, capsize=2, linewidth=1
        )
    speeds.axvline(1, color=ink, linewidth=1, linestyle=":")
    times.set(
        xlabel=f"time each in {unit_name}: median and quartiles", xmargin=0.15, xlim=(0, None)
    )
    speeds.set(xlabel="speed-up over the first line", xmargin=0.2, xlim=(0, None))
    times.set_yticks(range(len(labels)), labels)
    times.invert_yaxis()
    names = [
        f"{found[place]['name']} {found[place]['version'] or ''}".strip() for place in frameworks
    ]
    patches = [
        Patch(color=colours[place], label=name)
        for place, name in zip(frameworks, names, strict=True)
    ]
    figure.legend(handles=patches, loc="outside lower center", ncols=len(patches), frameon=False)
    return figure
