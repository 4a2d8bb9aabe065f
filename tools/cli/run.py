"""``xdevice run``: one script, once in this process or under several frameworks side by side."""

import argparse
import os
import sys

from xdevice.tools.cli.program import Program, imported_by, program_of
from xdevice.errors import ArgumentError
from xdevice.framework.choosing import backend
from xdevice.hardware.virtual import are_asked_for, provider
from xdevice.backends.kit import keras


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
    if options.stand_in or options.watch_transfers:  # --fits stands in
        return _run_once(program, options)
    from xdevice.tools.cli.several_runs import run_several

    return run_several(program, options)


def _program(options: argparse.Namespace) -> Program:
    if options.env and options.how == "-m":  # the module may exist in tox's environment only
        return Program(["-m", options.script], options.script)
    return program_of(options.script, options.how)


def _run_once(program: Program, options: argparse.Namespace) -> int:
    """Become the script's process: its output, signals and exit status are as without xdevice."""
    if program.only_starts_others and options.watch_transfers:
        raise ArgumentError(
            f"{program.title!r} starts processes, and --watch-transfers watches one Python program; "
            f"type xdevice run --watch-transfers SCRIPT for what {program.title!r} starts"
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
    if options.fits is not None:
        provider().check_measured(frameworks)
    os.environ.update(program.search_path(sys.executable))
    observer: list[str] = []
    if options.watch_transfers:
        from xdevice.tools.cli import watched

        observer = watched.by(options)
    elif options.fits is not None:
        from xdevice.tools.cli import fits

        return fits.run(program, options)
    if observer:
        command = [sys.executable, *options.flags, *observer, *program.words, *options.args]
    else:
        command = [*program.run_by(sys.executable, options.flags), *options.args]
    if os.name != "nt":  # the shell of Windows would not wait for a process that is replaced
        sys.stdout.flush()
        os.execv(command[0], command)
    import subprocess  # 3 ms

    return subprocess.call(command)
