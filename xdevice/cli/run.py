"""``xdevice run``: one script under several frameworks, each in a process of its own, side by side."""

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

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
    in_tox = (
        options.how == "-m" and options.env
    )  # whose environments may have a module that this one has not
    program = (
        Program(["-m", options.script], options.script)
        if in_tox
        else program_of(options.script, options.how)
    )
    if options.virtual_gpus:
        provider().ask_for_children(
            options.virtual_gpus, options.stand_in, options.lenient, options.races
        )
    if options.stand_in or options.watch_transfers:
        return _run_once(program, options)
    names = _environments(options.backend) if options.env else probe.frameworks(options.backend)
    if options.virtual_gpus and not options.env:
        provider().check_limits(names)
    pythons, failed, interrupted = _pythons(names, options)
    # unbuffered, so that the output of a run that is stopped is complete
    env = {"PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8", **os.environ}
    for variable in (
        ("PYTHONPATH", "PYTHONHOME") if options.env else ()
    ):  # packages of the present environment
        env.pop(variable, None)
    children = []
    for name, python in pythons.items():
        own = {**env, **_told(program, python), "XDEVICE_BACKEND": name}
        words = [*program.run_by(python, options.flags), *options.args]
        children.append(Child(name, words, own))
    if not interrupted:
        with Progress(program.shown, quiet=options.json) as progress:
            jobs = options.jobs or max(1, (usable_threads() or 2) // 2)
            interrupted = run_all(children, jobs, options.timeout, progress)
    ended = {child.name: child for child in (*children, *failed)}
    runs = [Run(ended[name]) for name in names]
    report = Report(program.shown, options.args, runs, options.tolerance, options.normalize)
    if options.json:
        write_json(as_json(report, interrupted is not None))
    else:
        write(*rendered(report))
    if interrupted:
        return 128 + interrupted
    return int(
        any(child.status != "ok" for child in ended.values())
        or (options.strict and not report.agree)
    )


def _told(program: Program, python: str) -> dict[str, str]:
    """What a command is told in its environment, so that it starts the same Python."""
    return {"PATH": search_path(python)} if program.is_command else {}


def _run_once(program: Program, options: argparse.Namespace) -> int:
    """Become the script's own process: its output, signals and exit status are as without xdevice."""
    if options.watch_transfers and program.only_starts_others:
        why = (
            f"{program.shown!r} starts processes, and --watch-transfers watches one Python program"
        )
        raise ArgumentError(
            f"{why}; type xdevice run --watch-transfers SCRIPT for what {program.shown!r} starts"
        )
    for name in options.backend:
        os.environ["XDEVICE_BACKEND"] = str(backend(name))
        keras.choose(str(backend(name)))
    used = options.backend or (imported_by(program.file) if program.file is not None else [])
    if are_asked_for():
        provider().check_limits(used)
    if options.virtual_gpus:
        provider().require(used)
    os.environ.update(_told(program, sys.executable))
    if options.watch_transfers:
        watched_by = [sys.executable, *options.flags, *watched.by(options)]
        command = [*watched_by, *program.words, *options.args]
    else:
        command = [*program.run_by(sys.executable, options.flags), *options.args]
    if os.name != "nt":  # where the shell would not wait for a process that has been replaced
        sys.stdout.flush()
        os.execv(command[0], command)
    return subprocess.call(command)


def _pythons(
    names: Sequence[str], options: argparse.Namespace
) -> tuple[dict[str, str], list[Child], int | None]:
    """Each framework's Python, the preparations that failed, and the signal that cut them short."""
    if not options.env:
        return dict.fromkeys(names, sys.executable), [], None
    children = [Child(name, [*_tox(), "run", "-e", name, "--notest"]) for name in names]
    with Progress("tox makes the environments ready", quiet=options.json) as progress:
        interrupted = run_all(children, 1, None, progress)  # they share tox's packaging environment
    good = [child.name for child in children if child.status == "ok"]
    if interrupted:
        for child in children:
            child.status = (
                "stopped"  # an environment may be ready, but the script did not run in it
            )
        return {}, children, interrupted
    told = {name: _ask_tox("config", "-q", "-e", name, "-k", "env_python") for name in good}
    pythons = {name: answer.partition("=")[2].strip() for name, answer in told.items()}
    return pythons, [child for child in children if child.status != "ok"], None


def _environments(asked: Sequence[str]) -> list[str]:
    """The frameworks asked for, or all that the project in this folder has a tox environment for, named like it."""
    there = _ask_tox(
        "list", "-q", "--no-desc", *([] if asked else ["-d"])
    ).split()  # -d: without those run on request
    chosen = [str(find(name)) for name in asked] or [name for name in registered() if name in there]
    listed = ", ".join(there) or "none"
    if not chosen:
        none = f"no tox environment here is named like a framework; there are {listed}"
        raise ArgumentError(f"{none}; go to a folder whose tox.ini has some")
    for name in (name for name in chosen if name not in there):
        raise ArgumentError(
            f"no tox environment {name!r} here; there are {listed}; name these, or leave --env tox out"
        )
    return chosen


def _tox() -> list[str]:
    if find_spec("tox") is None:
        raise ArgumentError("--env tox needs tox; pip install tox")
    return [sys.executable, "-m", "tox"]


def _ask_tox(*arguments: str) -> str:
    done = subprocess.run([*_tox(), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stdout + done.stderr).strip().splitlines() or [f"exit {done.returncode}"]
        raise ArgumentError(
            f"tox fails in {str(Path.cwd())!r} ({said[-1]}); tox list should show its environments"
        )
    return done.stdout
