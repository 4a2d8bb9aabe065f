"""``xdevice run``: one script under several frameworks, each in its own process, side by side."""

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from xdevice.cli import probe, watched
from xdevice.cli.program import Program, imported_by, program_of, search_path
from xdevice.cli.report import Report, Run, as_json, rendered
from xdevice.errors import ArgumentError
from xdevice.framework.adapters import find, registered
from xdevice.framework.choosing import backend
from xdevice.hardware.virtual import are_asked_for, provider
from xdevice.kit import keras
from xdevice.launcher.children import Child, run_all
from xdevice.launcher.terminal import Progress, write, write_json
from xdevice.machine import usable_threads


def main(options: argparse.Namespace) -> int:
    program = _program(options)
    if options.virtual_gpus:
        provider().ask_for_children(
            options.virtual_gpus,
            options.stand_in,
            options.lenient,
            options.races,
            options.gpu_model,
        )
    if options.stand_in or options.watch_transfers:
        return _run_once(program, options)
    if options.env:
        names = _environments(options.backend)
    else:
        names = probe.frameworks(options.backend)
    if options.virtual_gpus and not options.env:
        provider().check_limits(names)
    pythons, failed, interrupted = _pythons(names, options)
    children = [_child(name, python, program, options) for name, python in pythons.items()]
    if not interrupted:
        with Progress(program.title, quiet=options.json) as progress:
            jobs = options.jobs or max(1, (usable_threads() or 2) // 2)
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


def _program(options: argparse.Namespace) -> Program:
    if options.env and options.how == "-m":  # the module may exist in tox's environment only
        return Program(["-m", options.script], options.script)
    return program_of(options.script, options.how)


def _child(name: str, python: str, program: Program, options: argparse.Namespace) -> Child:
    """The process that runs the program under one framework, not yet started."""
    # Without a buffer, the output of a run that is stopped is complete.
    environment = {"PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8", **os.environ}
    if options.env:  # these name the packages of the present environment
        environment.pop("PYTHONPATH", None)
        environment.pop("PYTHONHOME", None)
    environment.update(_path_for(program, python))
    environment["XDEVICE_BACKEND"] = name
    words = [*program.run_by(python, options.flags), *options.args]
    return Child(name, words, environment)


def _path_for(program: Program, python: str) -> dict[str, str]:
    """The PATH with which a command starts the same Python; nothing for a Python program."""
    if not program.is_command:
        return {}
    return {"PATH": search_path(python)}


def _run_once(program: Program, options: argparse.Namespace) -> int:
    """Become the script's process: its output, signals and exit status are as without xdevice."""
    if options.watch_transfers and program.only_starts_others:
        name = program.title
        raise ArgumentError(
            f"{name!r} starts processes, and --watch-transfers watches one Python program; "
            f"type xdevice run --watch-transfers SCRIPT for what {name!r} starts"
        )
    for name in options.backend:
        os.environ["XDEVICE_BACKEND"] = str(backend(name))
        keras.choose(str(backend(name)))
    frameworks = options.backend
    if not frameworks and program.file is not None:
        frameworks = imported_by(program.file)
    if are_asked_for():
        provider().check_limits(frameworks)
    if options.virtual_gpus:
        provider().require(frameworks)
    os.environ.update(_path_for(program, sys.executable))
    if options.watch_transfers:
        watcher = [sys.executable, *options.flags, *watched.by(options)]
        command = [*watcher, *program.words, *options.args]
    else:
        command = [*program.run_by(sys.executable, options.flags), *options.args]
    if os.name != "nt":  # the shell of Windows would not wait for a process that is replaced
        sys.stdout.flush()
        os.execv(command[0], command)
    return subprocess.call(command)


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
