"""``xdevice run --watch-transfers``: the script's process, which reports its copies at the end.

The report is text, JSON, SARIF 2.1.0, or annotations for GitHub.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote

from xdevice._version import __version__
from xdevice.tools.cli.parser import fail
from xdevice.tools.cli.running import run_program, show_error
from xdevice.errors import ArgumentError, VirtualDeviceError, XDeviceError
from xdevice.framework.at_import import RefusedExit, RefusedImportError
from xdevice.hardware.bus import DEFAULT, Bus
from xdevice.hardware.virtual import are_asked_for
from xdevice.escaping import as_json, escaped
from xdevice.transfers.baseline import Baseline
from xdevice.transfers.report import Finding, Report, watch_transfers
from xdevice.transfers.rules import RULES
from xdevice.transfers.watching import accept

Settings: TypeAlias = dict[str, Any]  # what `by` passes to `main`, as JSON


def by(options: argparse.Namespace) -> list[str]:
    """The arguments for Python before a script, or ``-m`` and a module, so that it is watched."""
    if options.report is not None and not options.report.parent.is_dir():
        raise ArgumentError(
            f"--report {str(options.report)!r}: there is no folder {str(options.report.parent)!r}"
        )
    if options.baseline is not None and not options.update_baseline:
        Baseline.read(options.baseline)  # an error is raised before the script runs
    settings = {
        "bus": Bus.parsed(options.bus, "--bus") if options.bus is not None else DEFAULT,
        "format": options.format or "text",
        "report": options.report and os.path.abspath(options.report),
        "folder": os.getcwd(),
        "most": options.max_copies,
        "baseline": options.baseline and os.path.abspath(options.baseline),
        "updates": bool(options.update_baseline),
    }
    return ["-c", "from xdevice.tools.cli.watched import main; main()", json.dumps(settings)]


def main() -> None:
    """Run the script as Python would, report, and end as the script has ended."""
    settings = json.loads(sys.argv[1])
    process = os.getpid()
    del sys.argv[:2]
    try:
        if settings["baseline"] and not settings["updates"]:
            accept(Baseline.read(settings["baseline"]))
        watch = watch_transfers(Bus(*settings["bus"]))
        report = watch.__enter__()
    except XDeviceError as error:
        sys.exit(fail(str(error)))
    script_error = run_program()
    watch.__exit__()
    if isinstance(script_error, RefusedExit | RefusedImportError):
        sys.exit(2)  # nothing has run that could be reported
    if isinstance(script_error, VirtualDeviceError) and are_asked_for():
        sys.exit(fail(str(script_error)))
    is_fork = os.getpid() != process
    if not is_fork:
        _report(report, script_error, settings)
    if script_error is not None:
        if not isinstance(script_error, SystemExit):
            sys.excepthook = lambda *error: None  # the error has been shown
        raise script_error
    if not is_fork:
        _check_limit(report, settings["most"])


def _report(report: Report, script_error: BaseException | None, settings: Settings) -> None:
    """Show the script's error, if it ended with one, then update the baseline, then report."""
    if script_error is not None and not isinstance(script_error, SystemExit):
        show_error(script_error)
    baseline = settings["baseline"]
    if baseline and settings["updates"]:
        number = Baseline(baseline).write(report.lines)
        noun = "line" if number == 1 else "lines"
        print(f"xdevice: {baseline}: {number} {noun} that copy", file=sys.stderr)
    _show(report, settings)


def _check_limit(report: Report, most: int | None) -> None:
    """End the process if there are more copies than ``--max-copies`` allows."""
    if most is None:
        return
    if not report.has_gpu():
        message = (
            f"--max-copies {most} says nothing where no framework has a GPU; "
            "--virtual-gpus 2 gives it virtual ones"
        )
        sys.exit(fail(message))
    if report.copies > most:
        fail(f"{report.copies} copies are more than --max-copies {most}")
        sys.exit(1)


def _show(report: Report, settings: Settings) -> None:
    sys.stdout.flush()
    text = _text(report, settings)
    if settings["report"]:
        Path(settings["report"]).write_text(f"{text}\n", encoding="utf-8")
    else:
        print(text, file=sys.stderr)


def _text(report: Report, settings: Settings) -> str:
    """The report in its format, with paths relative to the folder where the script was started."""
    folder_of_script = os.getcwd()
    os.chdir(settings["folder"])
    if settings["format"] == "text" and not settings["report"]:
        text = str(report)  # as wide as the terminal
    else:
        text = FORMATS[settings["format"]](report)
    os.chdir(folder_of_script)
    return text


def sarif(report: Report) -> str:
    """The findings that have advice, in the format that code scanning reads."""
    rules = [
        {"id": name, "shortDescription": {"text": name.replace("-", " ").capitalize()}}
        for name in RULES
    ]
    driver = {"name": "xdevice", "version": __version__, "rules": rules}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_sarif_result(finding) for finding in _with_advice(report)],
    }
    schema = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/os/schemas/sarif-schema-2.1.0.json"
    return as_json({"$schema": schema, "version": "2.1.0", "runs": [run]})


def _with_advice(report: Report) -> list[Finding]:
    """The findings with a line to change and what to write there."""
    return [finding for finding in report if finding.rule and finding.file]


def _sarif_result(finding: Finding) -> dict[str, Any]:
    location = {
        "artifactLocation": {"uri": _uri(finding.file)},
        "region": {"startLine": finding.line, "snippet": {"text": finding.source}},
    }
    return {
        "ruleId": finding.rule,
        "level": "warning",
        "message": {"text": f"{finding.what}; {finding.advice}"},
        "locations": [{"physicalLocation": location}],
    }


def _uri(file: str) -> str:
    """A path relative to the working directory if the file is below it, as code scanning needs."""
    path = Path(file).resolve()
    if path.is_relative_to(Path.cwd()):
        return quote(path.relative_to(Path.cwd()).as_posix())
    return path.as_uri()


def github(report: Report) -> str:
    """A workflow's warning for each finding that has advice: GitHub shows it beside the line."""
    return "\n".join(_github_warning(finding) for finding in _with_advice(report))


def _github_warning(finding: Finding) -> str:
    path = _escaped(os.path.relpath(finding.file), ":,")
    message = _escaped(f"{finding.what}; {finding.advice}")
    return f"::warning file={path},line={finding.line},title={finding.rule}::{message}"


def _escaped(text: str, separators: str = "") -> str:
    for character in "%\r\n" + separators:
        text = text.replace(character, f"%{ord(character):02X}")
    return escaped(text)


FORMATS: dict[str, Callable[[Report], str]] = {
    "text": Report.to_text,
    "json": Report.to_json,
    "sarif": sarif,
    "github": github,
}
