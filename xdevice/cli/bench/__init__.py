"""``xdevice bench``: the lessons' experiments, timed under several frameworks, one process each."""

import argparse
import json
import os
import platform
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from xdevice._version import __version__
from xdevice.cli import probe
from xdevice.cli.answering import PYTHON
from xdevice.cli.bench import figures, results
from xdevice.device import parse
from xdevice.errors import ArgumentError
from xdevice.experiments import EXPERIMENTS, find, title
from xdevice.launcher.children import Child, run_all
from xdevice.launcher.terminal import Progress, write
from xdevice.machine import gpus, host

PICTURES = (".png", ".svg", ".pdf")


def main(options: argparse.Namespace) -> int:
    """Run the experiments, show their times, and give the exit status: 1 if one of them failed."""
    if options.list:
        write(results.catalogue({name: title(experiment) for name, experiment in EXPERIMENTS.items()}))
        return 0
    names = list(dict.fromkeys(options.experiments)) or list(EXPERIMENTS)
    _check(names, options)
    chosen = probe.frameworks(options.backend)
    with tempfile.TemporaryDirectory() as folder:
        children = [_child(framework, names, options, Path(folder)) for framework in chosen]
        with Progress("bench", newest=lambda child: _now(Path(folder, child.name), len(names))) as progress:
            interrupted = run_all(children, 1, options.timeout, progress)  # one at a time, undisturbed
        found = [results.answer(child, results.read(Path(folder, child.name)), names) for child in children]
    write(*results.rendered(found))
    if options.json:
        _save(options.json, found, options.scale)
    if options.plot:
        for file in figures.plot(found, options.plot, dark=options.dark):
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
    if options.plot and options.plot.suffix not in PICTURES:
        raise ArgumentError(
            f"'{options.plot}' is not a picture; name a {', '.join(PICTURES[:-1])} or {PICTURES[-1]} file"
        )
    if options.plot and find_spec("matplotlib") is None:
        raise ArgumentError("--plot needs matplotlib; pip install matplotlib")
    for file in filter(None, (options.json, options.plot)):
        _check_writable(file)


def _check_writable(file: Path) -> None:
    if not os.path.isdir(file.parent):  # never fails, as Path.is_dir may
        raise ArgumentError(f"the folder '{file.parent}' of {file.name!r} does not exist; make it first")
    if os.path.isdir(file):
        raise ArgumentError(f"'{file}' is a folder; give the name of a file")
    new = not os.path.exists(file)
    try:
        file.open("ab").close()  # permissions do not tell, above all for root
    except OSError as error:
        raise ArgumentError(f"'{file}' cannot be written: {error.strerror}; give another file") from error
    if new:
        file.unlink()


def _child(framework: str, names: Sequence[str], options: argparse.Namespace, folder: Path) -> Child:
    work = [str(folder / framework), options.device or "", str(options.scale), *names]
    environment = {**os.environ, "XDEVICE_BACKEND": framework}
    return Child(framework, [*PYTHON, "-m", "xdevice.experiments", *work], environment)


def _now(file: Path, experiments: int) -> str:
    """How far a process is: ``2 of 9, tiny: 10 × 10 on the CPU``."""
    done, now = results.progress(results.read(file))
    return f"{done} of {experiments}, {now}"


def _save(file: Path, found: list[dict[str, Any]], scale: float) -> None:
    machine = {"host": host(), **gpus()}
    report = {"xdevice": __version__, "python": platform.python_version(), "platform": platform.platform(),
              "machine": machine, "scale": scale, "backends": found}  # fmt: skip
    file.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
