"""``xdevice run --fits``: starts the program, waits for it, and reports whether a GPU's memory suffices.

The report is made in this process, so that there is one for a program that
crashes, calls ``os._exit``, or starts others.
"""

import argparse
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

from xdevice.tools.cli.parser import fail
from xdevice.tools.cli.program import Program
from xdevice.tools.cli.running import run_program, show_error
from xdevice.contract import ProgramStopped
from xdevice.errors import ArgumentError, VirtualDeviceError
from xdevice.framework.at_import import RefusedExit, RefusedImportError
from xdevice.hardware.virtual import FitReport, Measurement, ProgramEnd, provider
from xdevice.units import duration

_INTERVAL = 0.1  # seconds between two looks at the program
_GRACE = (
    20.0  # seconds that a program has to end after one of its processes, or itself, was stopped
)


class _Ended(NamedTuple):
    """How the program has ended."""

    words: str
    has_failed: bool = False
    is_complete: bool = False  # by itself, and without an error


def run(program: Program, options: argparse.Namespace) -> int:
    """Run the program, print the report, and return the status of the answer."""
    report_file = options.report
    if report_file is not None and not report_file.parent.is_dir():
        raise ArgumentError(
            f"--report {str(report_file)!r}: there is no folder {str(report_file.parent)!r}"
        )
    measurement = provider().measurement(options.fits, options.stop_after)
    try:
        ended = _run(program, options, measurement)
        if measurement.is_refused():
            return 2
        report = measurement.report(ended.words, ended.is_complete, ended.has_failed)
    finally:
        measurement.close()
    text = _FORMATS[options.format or "text"](report)
    if report_file is not None:
        report_file.write_text(f"{text}\n", encoding="utf-8")
    else:
        print(text, file=sys.stderr)
    return report.status


def _run(program: Program, options: argparse.Namespace, measurement: Measurement) -> _Ended:
    command = [*program.run_by(sys.executable, options.flags), *options.args]
    if not program.is_command:
        seconds = "" if options.timeout is None else repr(options.timeout)
        observer = ["-c", "from xdevice.tools.cli.fits import main; main()", seconds, program.title]
        command = [sys.executable, *options.flags, *observer, *program.words, *options.args]
    sys.stdout.flush()
    process = subprocess.Popen(command, env=os.environ | measurement.environment)
    limit = math.inf if options.timeout is None else options.timeout
    if not program.is_command:
        limit += _GRACE  # it stops itself
    if _wait(process, measurement, limit):
        return _Ended(f"the program was stopped after {duration(options.timeout)}")
    if measurement.stopped_since() is not None:
        return _Ended(f"the program was stopped after {options.stop_after} steps of an optimizer")
    return _how_it_ended(process.returncode, measurement.end_of_program())


def _how_it_ended(status: int, end: ProgramEnd | None) -> _Ended:
    if end is not None and end.stopped:
        return _Ended(f"the program was {end.stopped}")
    if status < 0:
        return _Ended(f"the program was ended by {signal.Signals(-status).name}", has_failed=True)
    if end is not None and end.error:
        return _Ended(f"the program {end.error}", has_failed=True)
    if status:
        return _Ended(f"the program ended with status {status}", has_failed=True)
    return _Ended("the program ended by itself", is_complete=True)


def _wait(process: subprocess.Popen[bytes], measurement: Measurement, limit: float) -> bool:
    """Wait until the program has ended, and return whether it was ended after the time limit."""
    latest = time.monotonic() + limit
    is_too_long = False
    signal.signal(signal.SIGINT, lambda number, frame: _pass_on(process, number))
    signal.signal(signal.SIGTERM, lambda number, frame: process.send_signal(number))
    while True:
        try:
            process.wait(_INTERVAL)
        except subprocess.TimeoutExpired:
            pass
        else:
            return is_too_long
        end = measurement.end_of_program()
        if end is not None and end.stopped:
            measurement.terminate()  # or Python would wait for its children
        since = measurement.stopped_since()
        if time.monotonic() > latest or (since is not None and since > _GRACE):
            is_too_long = since is None
            measurement.terminate()
            process.terminate()


def _pass_on(process: subprocess.Popen[bytes], number: int) -> None:
    """Pass on Ctrl-C, unless a terminal sends it to the program as well."""
    try:
        is_from_terminal = os.tcgetpgrp(0) == os.getpgrp()
    except (OSError, AttributeError):
        is_from_terminal = False
    if not is_from_terminal:
        process.send_signal(number)


def main() -> None:
    """Run the program as Python would, in its process, and write down how it ended."""
    seconds, title = sys.argv[1:3]
    del sys.argv[:3]
    process = os.getpid()
    provider().begin_program(title)
    if seconds:
        _stop_after(float(seconds))
    error = run_program()
    if seconds:
        signal.setitimer(signal.ITIMER_REAL, 0)
    if os.getpid() != process:  # a fork of the program
        if error is not None:
            raise error
        return
    if isinstance(error, RefusedExit | RefusedImportError | VirtualDeviceError):
        provider().refuse_program()  # nothing has run that could be reported
        if isinstance(error, VirtualDeviceError):
            fail(str(error))
        sys.exit(2)
    has_failed = error is not None and not isinstance(
        error, SystemExit | KeyboardInterrupt | ProgramStopped
    )
    if error is not None and has_failed:
        show_error(error)
    provider().end_program(*_end(error, seconds))
    if isinstance(error, SystemExit):
        raise error
    sys.exit(int(has_failed))


def _stop_after(seconds: float) -> None:
    def stop(number: int, frame: object) -> None:
        raise ProgramStopped

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)


def _end(error: BaseException | None, seconds: str) -> tuple[str, str]:
    """How the program failed, and how it was stopped; both empty if it ended by itself."""
    if error is None or (isinstance(error, SystemExit) and not error.code):
        return "", ""
    if isinstance(error, KeyboardInterrupt):
        return "", "interrupted"
    if isinstance(error, ProgramStopped):
        return "", f"stopped after {duration(float(seconds or 0))}"
    if isinstance(error, SystemExit):
        status = error.code if isinstance(error.code, int) else 1  # Python prints other values
        return f"ended with status {status}", ""
    return f"ended with {type(error).__name__}", ""


def _as_text(report: FitReport) -> str:
    return report.to_text(shutil.get_terminal_size().columns)


def _as_json(report: FitReport) -> str:
    return report.to_json()


_FORMATS: dict[str, Callable[[FitReport], str]] = {"text": _as_text, "json": _as_json}
