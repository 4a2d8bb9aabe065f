"""``xdevice run --watch-transfers``: the script's own process, which reports its copies when the script ends.

As text, as JSON, as SARIF 2.1.0, or as annotations of GitHub's.
"""

import argparse
import json
import os
import runpy
import sys
from collections.abc import Callable
from io import open_code
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import quote

from xdevice._version import __version__
from xdevice.cli.parser import fail
from xdevice.errors import ArgumentError, VirtualDeviceError, XDeviceError
from xdevice.framework.at_import import RefusedExit, RefusedImportError
from xdevice.hardware.bus import DEFAULT, Bus
from xdevice.hardware.virtual import are_asked_for
from xdevice.kit.escaping import as_json, escaped
from xdevice.tensors.transfers.baseline import Baseline
from xdevice.tensors.transfers.report import Report, watch_transfers
from xdevice.tensors.transfers.rules import RULES
from xdevice.tensors.transfers.watching import accept

_OURS = (
    __file__,
    runpy.__file__,
    "<frozen runpy>",
)  # a traceback of the script's error is shown without these frames


def by(options: argparse.Namespace) -> list[str]:
    """What Python is given before a script, or ``-m`` and a module, for it to be watched."""
    if options.report is not None and not options.report.parent.is_dir():
        raise ArgumentError(
            f"--report {str(options.report)!r}: there is no folder {str(options.report.parent)!r}"
        )
    if options.baseline is not None and not options.update_baseline:
        Baseline.read(options.baseline)  # a mistake is said before the script runs
    settings = {
        "bus": Bus.parsed(options.bus, "--bus") if options.bus is not None else DEFAULT,
        "format": options.format or "text",
        "report": options.report and os.path.abspath(options.report),
        "folder": os.getcwd(),
        "most": options.max_copies,
        "baseline": options.baseline and os.path.abspath(options.baseline),
        "updates": bool(options.update_baseline),
    }
    return ["-c", "from xdevice.cli.watched import main; main()", json.dumps(settings)]


def main() -> None:
    """Run the script as Python would, report, and end as the script has ended."""
    settings, process = json.loads(sys.argv[1]), os.getpid()
    del sys.argv[:2]
    kept = settings["baseline"]
    try:
        if kept and not settings["updates"]:
            accept(Baseline.read(kept))
        watch = watch_transfers(Bus(*settings["bus"]))
        report = watch.__enter__()
    except XDeviceError as error:
        sys.exit(fail(str(error)))
    ended = _run()
    watch.__exit__()
    if isinstance(ended, RefusedExit | RefusedImportError):  # nothing was run to report on
        sys.exit(2)
    if isinstance(ended, VirtualDeviceError) and are_asked_for():
        sys.exit(fail(str(ended)))
    ours = os.getpid() == process  # else a fork has come to its end
    if ours:
        if ended is not None and not isinstance(ended, SystemExit):
            trace = ended.__traceback__
            while trace is not None and trace.tb_frame.f_code.co_filename in _OURS:
                trace = trace.tb_next
            ended.__traceback__ = trace
            sys.excepthook(type(ended), ended, trace)
        if kept and settings["updates"]:
            number = Baseline(kept).write(report.lines)
            print(
                f"xdevice: {kept}: {number} {'line' if number == 1 else 'lines'} that copy",
                file=sys.stderr,
            )
        _show(report, settings)
    if ended is not None:
        if not isinstance(ended, SystemExit):
            sys.excepthook = lambda *shown: None  # it has been shown
        raise ended
    most = settings["most"]
    if ours and most is not None and not report.has_gpu():
        said = f"--max-copies {most} says nothing where no framework has a GPU; --virtual-gpus 2 gives it virtual ones"
        sys.exit(fail(said))
    if ours and most is not None and report.copies > most:
        fail(f"{report.copies} copies are more than --max-copies {most}")
        sys.exit(1)


def _run() -> BaseException | None:
    """Run the program in ``argv``, and return what it ended with."""
    try:
        if sys.argv[0] == "-m":
            del sys.argv[0]
            sys.path[0] = os.getcwd()
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        elif sys.argv[0] == "-c":
            sys.path[0] = ""
            exec(compile(sys.argv.pop(1), "<string>", "exec"), vars(_new_main()))
        else:
            script = os.path.abspath(sys.argv[0])
            if os.path.isdir(script):
                script = os.path.join(script, "__main__.py")
            sys.path[0] = os.path.dirname(os.path.realpath(script))
            program = _new_main()
            program.__file__ = script
            with open_code(script) as file:
                code = compile(file.read(), script, "exec")
            exec(code, vars(program))
    except BaseException as error:  # KeyboardInterrupt, too: it is raised again, after the report
        return error
    return None


def _new_main() -> ModuleType:
    sys.modules["__main__"] = program = ModuleType("__main__")
    return program


def _show(report: Report, settings: dict[str, Any]) -> None:
    sys.stdout.flush()
    here = os.getcwd()
    os.chdir(
        settings["folder"]
    )  # to which the report's paths are relative, wherever the script has gone
    is_shown = settings["format"] == "text" and not settings["report"]
    text = str(report) if is_shown else FORMATS[settings["format"]](report)
    os.chdir(here)
    if settings["report"]:
        Path(settings["report"]).write_text(f"{text}\n", encoding="utf-8")
    else:
        print(text, file=sys.stderr)


def sarif(report: Report) -> str:
    """The findings that have advice, in the format that code scanning reads."""
    driver = {
        "name": "xdevice",
        "version": __version__,
        "rules": [
            {"id": name, "shortDescription": {"text": name.replace("-", " ").capitalize()}}
            for name in RULES
        ],
    }
    results: list[dict[str, Any]] = []
    for finding in report:
        if finding.rule and finding.file:
            region = {"startLine": finding.line, "snippet": {"text": finding.source}}
            place = {
                "physicalLocation": {
                    "artifactLocation": {"uri": _uri(finding.file)},
                    "region": region,
                }
            }
            message = {"text": f"{finding.what}; {finding.advice}"}
            results.append(
                {
                    "ruleId": finding.rule,
                    "level": "warning",
                    "message": message,
                    "locations": [place],
                }
            )
    schema = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/os/schemas/sarif-schema-2.1.0.json"
    runs: list[Any] = [
        {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    ]
    return as_json({"$schema": schema, "version": "2.1.0", "runs": runs})


def _uri(file: str) -> str:
    """Relative to the working directory where it is below it: as code scanning finds it in a repository."""
    path = Path(file).resolve()
    return (
        quote(path.relative_to(Path.cwd()).as_posix())
        if path.is_relative_to(Path.cwd())
        else path.as_uri()
    )


def github(report: Report) -> str:
    """A warning of a workflow for each finding that has advice: GitHub shows it beside the line."""
    return "\n".join(
        f"::warning file={_escaped(os.path.relpath(finding.file), ':,')},line={finding.line},"
        f"title={finding.rule}::{_escaped(f'{finding.what}; {finding.advice}')}"
        for finding in report
        if finding.rule and finding.file
    )


def _escaped(words: str, more: str = "") -> str:
    for character in "%\r\n" + more:
        words = words.replace(character, f"%{ord(character):02X}")
    return escaped(words)


FORMATS: dict[str, Callable[[Report], str]] = {
    "text": Report.to_text,
    "json": Report.to_json,
    "sarif": sarif,
    "github": github,
}
