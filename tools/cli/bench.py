"""``xdevice bench``: the lessons' experiments, timed under several frameworks, one process each."""

import argparse
import json
import os
import platform
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from xdevice._version import __version__
from xdevice.device import parse
from xdevice.errors import ArgumentError
from xdevice.machine import gpus, host
from xdevice.tools.cli.bench_plot import plot
from xdevice.tools.cli.bench_tables import tables
from xdevice.tools.cli.options import ALL_INSTALLED, add_backends, check_can_be_written
from xdevice.tools.cli.parser import Parser, scale, seconds
from xdevice.tools.cli.probe import PYTHON, Answer, failure
from xdevice.tools.cli.selection import frameworks
from xdevice.tools.experiments import EXPERIMENTS, find, title
from xdevice.tools.launcher.children import Child, run_all
from xdevice.tools.launcher.progress import Progress
from xdevice.tools.launcher.terminal import table, write
from xdevice.units import duration

Event = Answer  # a line that the process of the experiments writes: see `xdevice.tools.experiments.__main__`


def add_options(parser: Parser) -> None:
    parser.epilog = """\
example:
  xdevice bench --backend torch,jax --plot times.svg tiny transfer

Each framework runs in a process of its own, one after the other. A time is the
median of up to five turns, each measured after waiting for all devices; a line
says if the machine is too busy. The ratio to the CPU is that of an experiment's
first line, which is on the CPU, to this line.

Exit status: 0 if everything succeeded, 1 if a framework or an experiment
failed, 2 for an error in the command line."""
    add = parser.add_argument
    add("experiments", nargs="*", metavar="NAME", help="experiments; all if none is named")
    add_backends(parser, ALL_INSTALLED)
    device = "what the CPU is compared with (the first GPU, else the CPU)"
    add("--device", metavar="D", help=device)
    size = "sizes and repetitions, relative to the lessons' own (0.1)"
    add("--scale", type=scale, default=0.1, metavar="S", help=size)
    add("--timeout", type=seconds, metavar="S", help="stop a framework after S seconds")
    results = "write the results, with versions and devices, into FILE"
    add("--json", type=Path, metavar="FILE", help=results)
    picture = "draw the times: a .png, .svg or .pdf for each experiment"
    add("--plot", type=Path, metavar="FILE", help=picture)
    add("--dark", action="store_true", help="draw for a dark slide")
    add("--list", action="store_true", help="list the experiments, and exit")


def main(options: argparse.Namespace) -> int:
    if options.list:
        _list_experiments()
        return 0
    names = list(dict.fromkeys(options.experiments)) or list(EXPERIMENTS)
    _check(names, options)
    results, interrupted = _run(names, options)
    write(*tables(results))
    if options.json:
        report = _json_report(results, options.scale)
        options.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    if options.plot:
        for file in plot(results, options.plot, dark=options.dark):
            print(f"drawn: {file}", file=sys.stderr)
    if interrupted:
        return 128 + interrupted
    return int(any(result["status"] != "ok" for result in results))


def _list_experiments() -> None:
    catalogue = table("experiment", "what is compared")
    for name, experiment in EXPERIMENTS.items():
        catalogue.add_row(name, title(experiment))
    write(catalogue)


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
    for file in (options.json, options.plot):
        if file is not None:
            check_can_be_written(file)


def _run(names: Sequence[str], options: argparse.Namespace) -> tuple[list[Answer], int | None]:
    """The results of each framework, and the signal that interrupted them, if one did."""
    backends = frameworks(options.backend)
    with tempfile.TemporaryDirectory() as folder:
        files = {framework: Path(folder, framework) for framework in backends}
        children = [_child(framework, file, names, options) for framework, file in files.items()]

        def newest(child: Child) -> str:
            return progress_text(_events_in(files[child.name]), len(names))

        with Progress("bench", newest=newest) as progress:
            # one at a time, so that they do not slow each other down
            interrupted = run_all(children, 1, options.timeout, progress)
        results = [_result(child, _events_in(files[child.name]), names) for child in children]
    return results, interrupted


def _child(framework: str, file: Path, names: Sequence[str], options: argparse.Namespace) -> Child:
    command = [*PYTHON, "-m", "xdevice.tools.experiments"]
    arguments = [str(file), options.device or "", str(options.scale), *names]
    environment = {**os.environ, "XDEVICE_BACKEND": framework}
    return Child(framework, [*command, *arguments], environment)


def _events_in(file: Path) -> list[Event]:
    """What a process has written so far, without a line that is not complete."""
    try:
        lines = file.read_text(encoding="utf-8").split("\n")[:-1]
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in lines]


def progress_text(events: Sequence[Event], experiments: int) -> str:
    """How far a process has come, such as ``2 of 9, tiny: 10 × 10 on the CPU``."""
    if not events:
        return f"0 of {experiments}, importing the framework"
    finished = sum(_ends_an_experiment(event) for event in events)
    last_event = events[-1]
    current = last_event.get("experiment", "")
    if "working" in last_event:
        current += f": {last_event['working']}"
    return f"{finished} of {experiments}, {current}"


def _ends_an_experiment(event: Event) -> bool:
    if "done" in event or "skipped" in event:
        return True
    return "error" in event and "experiment" in event


def _result(child: Child, events: Sequence[Event], names: Sequence[str]) -> Answer:
    """What the process has told of its framework, and why it ended if it failed."""
    result: Answer = {
        "name": child.name,
        "status": child.status,
        "version": None,
        "devices": [],
        "error": None,
    }
    experiments: dict[str, Answer] = {}
    for event in events:
        if "about" in event:
            result.update(event["about"])
        elif "experiment" in event:
            _add_event(experiments, event)
        else:
            result["error"] = event["error"]
    if child.status != "ok" and not result["error"] and not _have_errors(experiments):
        result["error"] = _reason_of_end(child)
    result["experiments"] = [experiments[name] for name in names if name in experiments]
    return result


def _add_event(experiments: dict[str, Answer], event: Event) -> None:
    """Add to the results of the event's experiment, which its first event begins."""
    name = event["experiment"]
    if name not in experiments:
        experiments[name] = {
            "name": name,
            "title": event["title"],
            "rows": [],
            "skipped": None,
            "busy": None,
            "error": None,
        }
    experiment = experiments[name]
    if "row" in event:
        experiment["rows"].append(event["row"])
    for key in ("skipped", "busy", "error"):
        if key in event:
            experiment[key] = event[key]
    if experiment["busy"]:
        for row in experiment["rows"]:
            row["ratio_to_cpu"] = None


def _have_errors(experiments: Mapping[str, Answer]) -> bool:
    return any(experiment["error"] for experiment in experiments.values())


def _reason_of_end(child: Child) -> str:
    if child.status in ("timed out", "stopped"):
        return f"{child.status} after {duration(child.seconds)}"
    return failure(child.exit_status, child.output()[1])


def _json_report(results: Sequence[Answer], scale: float) -> Answer:
    return {
        "xdevice": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "machine": {"host": host(), **gpus()},
        "scale": scale,
        "backends": results,
    }
