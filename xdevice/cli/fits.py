"""``xdevice run --fits``: the program's process, which reports at the end whether a GPU's memory suffices."""

import argparse
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from xdevice.cli.parser import fail
from xdevice.cli.running import run_program, show_error
from xdevice.contract import ProgramStopped
from xdevice.errors import ArgumentError, VirtualDeviceError, XDeviceError
from xdevice.framework.at_import import RefusedExit, RefusedImportError
from xdevice.hardware.virtual import FitReport, provider
from xdevice.kit.units import duration

Settings: TypeAlias = dict[str, Any]  # what `by` passes to `main`, as JSON


def by(options: argparse.Namespace) -> list[str]:
    """The arguments for Python before a program, or ``-m`` and a module, so that it is measured."""
    if options.report is not None and not options.report.parent.is_dir():
        raise ArgumentError(
            f"--report {str(options.report)!r}: there is no folder {str(options.report.parent)!r}"
        )
    provider().measure_memory(options.fits, options.stop_after)  # raises errors of the request
    settings = {
        "size": options.fits,
        "format": options.format or "text",
        "report": options.report and os.path.abspath(options.report),
        "folder": os.getcwd(),
        "steps": options.stop_after,
        "seconds": options.timeout,
    }
    return ["-c", "from xdevice.cli.fits import main; main()", json.dumps(settings)]


def main() -> None:
    """Run the program as Python would, report, and end with the status of the answer."""
    settings = json.loads(sys.argv[1])
    process = os.getpid()
    del sys.argv[:2]
    provider().measure_memory(settings["size"], settings["steps"])
    if settings["seconds"] is not None:
        _stop_after(settings["seconds"])
    error = run_program()
    if settings["seconds"] is not None:
        signal.setitimer(signal.ITIMER_REAL, 0)
    if isinstance(error, RefusedExit | RefusedImportError):
        sys.exit(2)  # nothing has run that could be reported
    if isinstance(error, VirtualDeviceError):
        sys.exit(fail(str(error)))
    if os.getpid() != process:  # a fork of the program
        if error is not None:
            raise error
        return
    sys.exit(_report(error, settings))


def _stop_after(seconds: float) -> None:
    def stop(number: int, frame: object) -> None:
        raise ProgramStopped

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)


def _report(error: BaseException | None, settings: Settings) -> int:
    """Show the program's error, if it ended with one, then the report; return its status."""
    words, has_failed = _ended(error, settings)
    if has_failed and not isinstance(error, SystemExit):
        assert error is not None
        show_error(error)
    try:
        report = provider().memory_report(words, error is None, has_failed)
    except XDeviceError as problem:
        return fail(str(problem))
    sys.stdout.flush()
    folder_of_program = os.getcwd()
    os.chdir(settings["folder"])
    text = _FORMATS[settings["format"]](report)
    os.chdir(folder_of_program)
    if settings["report"]:
        Path(settings["report"]).write_text(f"{text}\n", encoding="utf-8")
    else:
        print(text, file=sys.stderr)
    return report.status


def _ended(error: BaseException | None, settings: Settings) -> tuple[str, bool]:
    """How the program ended, in words, and whether that was an error."""
    if error is None or (isinstance(error, SystemExit) and not error.code):
        return "the program ended by itself", False
    if isinstance(error, KeyboardInterrupt):
        return "the program was interrupted", False
    if isinstance(error, ProgramStopped):
        limit = f"{settings['steps']} steps of an optimizer"
        if settings["steps"] is None:
            limit = duration(settings["seconds"])
        return f"the program was stopped after {limit}", False
    return f"the program ended with {type(error).__name__}", True


def _as_text(report: FitReport) -> str:
    return report.to_text(shutil.get_terminal_size().columns)


def _as_json(report: FitReport) -> str:
    return report.to_json()


_FORMATS: dict[str, Callable[[FitReport], str]] = {"text": _as_text, "json": _as_json}
