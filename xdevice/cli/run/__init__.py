"""``xdevice run``: one script under several frameworks, each in a process of its own, side by side."""

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence

from xdevice.cli import script, watched
from xdevice.cli.probe import frameworks
from xdevice.cli.run import environments, limits
from xdevice.cli.run.report import Report, Run, as_json, rendered
from xdevice.errors import ArgumentError
from xdevice.framework.choosing import backend
from xdevice.kit import keras
from xdevice.kit import virtual_request as request
from xdevice.launcher.children import Child, run_all
from xdevice.launcher.terminal import Progress, write, write_json
from xdevice.machine import usable_threads


def main(options: argparse.Namespace) -> int:
    program = (
        ["-m", options.script] if options.module and options.env else script.program(options.script, options.module)
    )
    if options.virtual_gpus:
        number = request.checked(options.virtual_gpus, f"--virtual-gpus {options.virtual_gpus}")
        words = {"lenient": options.lenient, "races": options.races}
        wanted = request.Request(number, False, options.stand_in, "--virtual-gpus", **words)
        request.propagate(wanted)
    if options.stand_in:
        request.set_aside()
    if options.stand_in or options.watch_transfers:
        return _run_once(program, options)
    names = environments.names(options.backend) if options.env else frameworks(options.backend)
    if options.virtual_gpus and not options.env:
        limits.check(names)
    pythons, failed, interrupted = _pythons(names, options)
    children = [
        Child(name, [pythons[name], *program, *options.args], _environment(name, bool(options.env)))
        for name in names
        if name in pythons
    ]
    if not interrupted:
        with Progress(program[-1], quiet=options.json) as progress:
            interrupted = run_all(
                children, options.jobs or max(1, (usable_threads() or 2) // 2), options.timeout, progress
            )
    ended = {child.name: child for child in (*children, *failed)}
    runs = [Run(ended[name]) for name in names]
    report = Report(program[-1], options.args, runs, options.tolerance, options.normalize)
    if options.json:
        write_json(as_json(report, interrupted is not None))
    else:
        write(*rendered(report))
    if interrupted:
        return 128 + interrupted
    return int(any(child.status != "ok" for child in ended.values()) or (options.strict and not report.agree))


def _run_once(program: list[str], options: argparse.Namespace) -> int:
    """Become the script's own process: its output, signals and exit status are as without xdevice."""
    if len(options.backend) > 1 or options.env or options.json:
        what = "--stand-in" if options.stand_in else "--watch-transfers"
        raise ArgumentError(f"{what} runs a script once; leave out --env and --json, and name at most one --backend")
    for name in options.backend:
        os.environ["XDEVICE_BACKEND"] = str(backend(name))
        keras.choose(str(backend(name)))
    limits.check(options.backend or ([] if options.module else limits.imported_by(program[-1])))
    command = [sys.executable, *(watched.by(options) if options.watch_transfers else []), *program, *options.args]
    if os.name != "nt":  # where the shell would not wait for a process that has been replaced
        sys.stdout.flush()
        os.execv(sys.executable, command)
    return subprocess.call(command)


def _pythons(names: Sequence[str], options: argparse.Namespace) -> tuple[dict[str, str], list[Child], int | None]:
    """Each framework's Python, the preparations that failed, and the signal that cut them short."""
    if not options.env:
        return dict.fromkeys(names, sys.executable), [], None
    children = environments.preparations(names)
    with Progress("tox makes the environments ready", quiet=options.json) as progress:
        interrupted = run_all(children, 1, None, progress)  # they share tox's packaging environment
    good = [child.name for child in children if child.status == "ok"]
    if interrupted:
        for child in children:
            child.status = "stopped"  # an environment may be ready, but the script did not run in it
        return {}, children, interrupted
    failed = [child for child in children if child.status != "ok"]
    return {name: environments.python(name) for name in good}, failed, None


def _environment(name: str, foreign: bool) -> Mapping[str, str]:
    env = {**os.environ, "XDEVICE_BACKEND": name}
    env.setdefault("PYTHONUNBUFFERED", "1")  # so that the output of a run that is stopped is complete
    env.setdefault("PYTHONIOENCODING", "utf-8")
    if foreign:  # these name packages of the present environment
        env.pop("PYTHONPATH", None)
        env.pop("PYTHONHOME", None)
    return env
