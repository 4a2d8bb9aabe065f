"""``xdevice run``: one script under several frameworks, side by side, and a report on them."""

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from xdevice.contract import Request
from xdevice.errors import ArgumentError, NotSupportedError
from xdevice.framework.adapters import find, registered
from xdevice.framework.registry import entry_points_of
from xdevice.hardware.virtual import GROUP
from xdevice.machine import usable_threads
from xdevice.tools.cli.options import ALL_INSTALLED, JSON, add_backends, add_gpus
from xdevice.tools.cli.parser import Parser, one_of, positive, seconds, tolerance
from xdevice.tools.cli.probe import check_virtual_gpus
from xdevice.tools.cli.program import Program, program_of
from xdevice.tools.cli.report import Report, Run, as_json
from xdevice.tools.cli.report_tables import rendered
from xdevice.tools.cli.selection import frameworks
from xdevice.tools.launcher.children import Child, run_all
from xdevice.tools.launcher.progress import Progress
from xdevice.tools.launcher.terminal import write
from xdevice.tools.launcher.texts import write_json
from xdevice.virtual import children as virtual_children


def add_options(parser: Parser) -> None:
    parser.epilog = """\
example:
  xdevice run --backend torch,jax --strict train.py --epochs 3

SCRIPT is a Python file, a folder with a __main__.py, or a command. It runs in a
process for each framework, which XDEVICE_BACKEND names; everything after it is
its own. Outputs are compared line by line: words must be equal, and numbers
within the tolerance. A failed run is shown separately.

Exit status: 0 if the script succeeds everywhere, 1 if it fails somewhere (with
--strict also if outputs differ), 2 for an error in the command line."""
    add = parser.add_argument
    add_backends(parser, ALL_INSTALLED)
    gpus = "give every framework that can have them N virtual GPUs"
    add_gpus(parser, "--virtual-gpus", gpus)
    add("--jobs", type=positive, metavar="N", help="run N at once (half the processor's threads)")
    add("--timeout", type=seconds, metavar="S", help="stop a run after S seconds")
    add("--strict", action="store_true", help="exit with 1 also if outputs differ")
    equal = "of floats, relative (1e-5); absolute: T/1000; integers are exact"
    add("--tolerance", type=tolerance, default=1e-5, metavar="T", help=equal)
    spellings = "treat cuda:0, gpu(0), Place(gpu:0) as equal"
    add("--normalize", action="store_true", help=spellings)
    tox = "run each framework in its tox environment"
    add("--env", **one_of(("tox",)), metavar="tox", help=tox)
    add("--json", action="store_true", help=JSON)
    parser.add_program("a Python file, or a command; -m: a module, -c: code", "SCRIPT")


def main(options: argparse.Namespace) -> int:
    """Run the program once under each framework, and print the report."""
    if options.env and options.how == "-m":  # the module may exist in tox's environment only
        program = Program(["-m", options.script], options.script)
    else:
        program = program_of(options.script, options.how)
    if options.virtual_gpus:
        source = f"--virtual-gpus {options.virtual_gpus}"
        virtual_children.give_to_program(Request(options.virtual_gpus, source=source))
    names = _environments(options.backend) if options.env else frameworks(options.backend)
    if options.virtual_gpus and not options.env:
        names = _with_virtual_gpus(names, are_chosen=bool(options.backend))
        check_virtual_gpus(names)
    pythons, failed, interrupted = _pythons(names, options)
    children = [_child(name, python, program, options) for name, python in pythons.items()]
    if not interrupted:
        jobs = options.jobs or max(1, (usable_threads() or 2) // 2)
        with Progress(program.title, quiet=options.json) as progress:
            interrupted = run_all(children, jobs, options.timeout, progress)
    child_of = {child.name: child for child in (*children, *failed)}
    runs = [Run(child_of[name]) for name in names]
    report = Report(program.title, options.args, runs, options.tolerance, options.normalize)
    if options.json:
        write_json(as_json(report, interrupted is not None))
    else:
        write(*rendered(report))
    if interrupted:
        return 128 + interrupted
    has_failed = any(child.status != "ok" for child in child_of.values())
    return int(has_failed or (options.strict and not report.agree))


def _with_virtual_gpus(names: Sequence[str], *, are_chosen: bool) -> list[str]:
    """The frameworks without those that have no virtual GPUs; a line on stderr names them.

    One that was chosen is not left out: it is an error.
    """
    modules = entry_points_of(GROUP)
    for name in names:
        if name not in modules:
            if are_chosen:
                raise NotSupportedError(f"{name} has no virtual GPUs; leave it out of --backend")
            print(f"xdevice: {name} is left out: it has no virtual GPUs", file=sys.stderr)
    return [name for name in names if name in modules]


def _child(name: str, python: str, program: Program, options: argparse.Namespace) -> Child:
    """The process that runs the program under one framework, not yet started."""
    # Without a buffer, the output of a run that is stopped is complete.
    environment = {"PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8", **os.environ}
    if options.env:  # these name the packages of the present environment
        environment.pop("PYTHONPATH", None)
        environment.pop("PYTHONHOME", None)
    environment.update(program.search_path(python))
    environment["XDEVICE_BACKEND"] = name
    words = [*program.run_by(python), *options.args]
    return Child(name, words, environment)


class _Pythons(NamedTuple):
    """What tox has prepared."""

    python_of: dict[str, str]  # each framework's interpreter
    failed: list[Child]  # the preparations that failed
    interrupted: int | None  # the signal that ended the preparation


def _pythons(names: Sequence[str], options: argparse.Namespace) -> _Pythons:
    """The interpreters that run the script; with ``--env tox``, those of tox's environments."""
    if not options.env:
        return _Pythons(dict.fromkeys(names, sys.executable), [], None)
    children = [Child(name, [*_tox(), "run", "-e", name, "--notest"]) for name in names]
    with Progress("tox prepares the environments", quiet=options.json) as progress:
        # One at a time: they share tox's packaging environment.
        interrupted = run_all(children, 1, None, progress)
    if interrupted:
        for child in children:
            child.status = "stopped"  # even if its environment is ready, the script did not run
        return _Pythons({}, children, interrupted)
    python_of: dict[str, str] = {}
    failed: list[Child] = []
    for child in children:
        if child.status == "ok":
            answer = _ask_tox("config", "-q", "-e", child.name, "-k", "env_python")
            python_of[child.name] = answer.partition("=")[2].strip()
        else:
            failed.append(child)
    return _Pythons(python_of, failed, None)


def _environments(names: Sequence[str]) -> list[str]:
    """The frameworks named; without names, those that have a tox environment of their name here."""
    arguments = ["list", "-q", "--no-desc"]
    if not names:
        arguments.append("-d")  # without the environments that run on request
    environments = _ask_tox(*arguments).split()
    listed = ", ".join(environments) or "none"
    if not names:
        chosen = [name for name in registered() if name in environments]
        if not chosen:
            raise ArgumentError(
                f"no tox environment here is named like a framework; there are {listed}; "
                "go to a folder whose tox.ini has some"
            )
        return chosen
    chosen = [str(find(name)) for name in names]
    for name in chosen:
        if name not in environments:
            raise ArgumentError(
                f"no tox environment {name!r} here; there are {listed}; "
                "name these, or leave --env tox out"
            )
    return chosen


def _tox() -> list[str]:
    if find_spec("tox") is None:
        raise ArgumentError("--env tox needs tox; pip install tox")
    return [sys.executable, "-m", "tox"]


def _ask_tox(*arguments: str) -> str:
    process = subprocess.run([*_tox(), *arguments], capture_output=True, text=True, check=False)
    if process.returncode == 0:
        return process.stdout
    lines = (process.stdout + process.stderr).strip().splitlines()
    reason = f"exit {process.returncode}"
    if lines:
        reason = lines[-1]
    raise ArgumentError(
        f"tox fails in {str(Path.cwd())!r} ({reason}); tox list should show its environments"
    )
