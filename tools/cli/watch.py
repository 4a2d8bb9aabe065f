"""``xdevice watch``: a program runs once, and its lines that copy between devices are reported.

The program runs in a process of its own, which reports at its end.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from xdevice.errors import ArgumentError, VirtualDeviceError, XDeviceError
from xdevice.escaping import escaped
from xdevice.framework.at_import import RefusedExit, RefusedImportError
from xdevice.tools.cli.options import add_backend, add_gpus, add_report, check_can_be_written
from xdevice.tools.cli.parser import Parser, count, fail
from xdevice.tools.cli.program import program_of
from xdevice.tools.cli.running import become, prepare, run_program, show_error
from xdevice.transfers.baseline import Baseline
from xdevice.transfers.report import Finding, Report, watch_transfers
from xdevice.transfers.watching import accept
from xdevice.virtual.request import Request, is_in_environment

_Settings: TypeAlias = dict[str, Any]  # what `main` passes to `observe`, as JSON


def add_options(parser: Parser) -> None:
    parser.epilog = """\
example:
  xdevice watch --gpus 2 train.py --epochs 1
  xdevice watch --max-copies 0 --format github -m package.train

The report on stderr says which lines of the program copy between the host and
a device, what that costs, and what to write instead. A line that ends with
# xdevice: allow may copy. Child processes are not watched.

--baseline FILE leaves out the lines in FILE, which --update-baseline writes.

Exit status: the program's; 1 if there are more copies than --max-copies; 2 for
an error in the command line."""
    add_gpus(parser, "--gpus", "give the program N virtual GPUs, as emulate does")
    most = "exit with 1 if there are more than N copies"
    parser.add_argument("--max-copies", type=count, metavar="N", help=most)
    baseline = "report only lines that are not in FILE"
    parser.add_argument("--baseline", type=Path, metavar="FILE", help=baseline)
    update = "write the lines that copy into that FILE"
    parser.add_argument("--update-baseline", action="store_true", help=update)
    add_report(parser, tuple(_FORMATS))
    add_backend(parser)
    parser.add_program("a Python program; -m: a module, -c: code")


def main(options: argparse.Namespace) -> int:
    program = program_of(options.script, options.how)
    if program.only_starts_others:
        raise ArgumentError(
            f"{program.title!r} starts processes, and xdevice watch watches one Python program; "
            f"type xdevice watch SCRIPT for what {program.title!r} starts"
        )
    if options.report is not None:
        check_can_be_written(options.report)
    if options.update_baseline and options.baseline is None:
        raise ArgumentError("--update-baseline writes the file of --baseline FILE; name it")
    if options.baseline is not None and not options.update_baseline:
        Baseline.read(options.baseline)  # an error is raised before the program runs
    request = None
    if options.gpus:
        request = Request(options.gpus, stand_in=True, source=f"--gpus {options.gpus}")
    prepare(program, options.backend, request)
    settings = {
        "format": options.format,
        "report": options.report and os.path.abspath(options.report),
        "folder": os.getcwd(),
        "most": options.max_copies,
        "baseline": options.baseline and os.path.abspath(options.baseline),
        "updates": options.update_baseline,
    }
    observer = [
        "-c",
        "from xdevice.tools.cli.watch import observe; observe()",
        json.dumps(settings),
    ]
    return become([sys.executable, *observer, *program.words, *options.args])


def observe() -> None:
    """Run the program as Python would, report, and end as the program has ended."""
    settings = json.loads(sys.argv[1])
    process = os.getpid()
    del sys.argv[:2]
    try:
        if settings["baseline"] and not settings["updates"]:
            accept(Baseline.read(settings["baseline"]))
        watch = watch_transfers()
        report = watch.__enter__()
    except XDeviceError as error:
        sys.exit(fail(str(error)))
    program_error = run_program()
    watch.__exit__()
    if isinstance(program_error, RefusedExit | RefusedImportError):
        sys.exit(2)  # nothing has run that could be reported
    if isinstance(program_error, VirtualDeviceError) and is_in_environment():
        sys.exit(fail(str(program_error)))
    is_fork = os.getpid() != process
    if not is_fork:
        _report(report, program_error, settings)
    if program_error is not None:
        if not isinstance(program_error, SystemExit):
            sys.excepthook = lambda *error: None  # the error has been shown
        raise program_error
    if not is_fork:
        _check_limit(report, settings["most"])


def _report(report: Report, program_error: BaseException | None, settings: _Settings) -> None:
    """Show the program's error, if it ended with one, then update the baseline, then report."""
    if program_error is not None and not isinstance(program_error, SystemExit):
        show_error(program_error)
    if settings["updates"]:
        number = Baseline(settings["baseline"]).write(report.lines)
        noun = "line" if number == 1 else "lines"
        print(f"xdevice: {settings['baseline']}: {number} {noun} that copy", file=sys.stderr)
    folder_of_program = os.getcwd()
    os.chdir(settings["folder"])  # paths are relative to the folder where the program was started
    if settings["format"] == "text" and not settings["report"]:
        text = str(report)  # as wide as the terminal
    else:
        text = _FORMATS[settings["format"]](report)
    os.chdir(folder_of_program)
    sys.stdout.flush()
    if settings["report"]:
        Path(settings["report"]).write_text(f"{text}\n", encoding="utf-8")
    else:
        print(text, file=sys.stderr)


def _check_limit(report: Report, most: int | None) -> None:
    """End the process if there are more copies than ``--max-copies`` allows."""
    if most is None:
        return
    if not report.has_gpu():
        message = (
            f"--max-copies {most} says nothing where no framework has a GPU; "
            "--gpus 2 gives it virtual ones"
        )
        sys.exit(fail(message))
    if report.copies > most:
        fail(f"{report.copies} copies are more than --max-copies {most}")
        sys.exit(1)


def github(report: Report) -> str:
    """A workflow's warning for each finding that has advice: GitHub shows it beside the line."""
    return "\n".join(
        _github_warning(finding) for finding in report if finding.rule and finding.file
    )


def _github_warning(finding: Finding) -> str:
    path = _escaped(os.path.relpath(finding.file), ":,")
    message = _escaped(f"{finding.what}; {finding.advice}")
    return f"::warning file={path},line={finding.line},title={finding.rule}::{message}"


def _escaped(text: str, separators: str = "") -> str:
    for character in "%\r\n" + separators:
        text = text.replace(character, f"%{ord(character):02X}")
    return escaped(text)


_FORMATS: dict[str, Callable[[Report], str]] = {
    "text": Report.to_text,
    "json": Report.to_json,
    "github": github,
}
