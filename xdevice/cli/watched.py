"""``xdevice run --watch-transfers``: the script's own process, which reports its copies when the script ends."""

import argparse
import json
import os
import runpy
import sys
from io import open_code
from pathlib import Path
from types import ModuleType
from typing import Any

from xdevice.cli.parser import fail
from xdevice.errors import ArgumentError, XDeviceError
from xdevice.hardware.bus import DEFAULT, Bus
from xdevice.tensors.transfers.formats import FORMATS
from xdevice.tensors.transfers.report import Report, watch_transfers

_OURS = (__file__, runpy.__file__, "<frozen runpy>")  # a traceback of the script's error is shown without these frames


def by(options: argparse.Namespace) -> list[str]:
    """What Python is given before a script, or ``-m`` and a module, for it to be watched."""
    if options.report is not None and not options.report.parent.is_dir():
        raise ArgumentError(f"--report {str(options.report)!r}: there is no folder {str(options.report.parent)!r}")
    settings = {
        "bus": Bus.parsed(options.bus, "--bus") if options.bus is not None else DEFAULT,
        "format": options.format or "text",
        "report": options.report and os.path.abspath(options.report),
        "folder": os.getcwd(),
        "most": options.max_copies,
    }
    return ["-c", "from xdevice.cli.watched import main; main()", json.dumps(settings)]


def main() -> None:
    """Run the script as Python would, report, and end as the script has ended."""
    settings, process = json.loads(sys.argv[1]), os.getpid()
    del sys.argv[:2]
    try:
        watch = watch_transfers(Bus(*settings["bus"]))
        report = watch.__enter__()
    except XDeviceError as error:
        sys.exit(fail(str(error)))
    ended = _run()
    watch.__exit__()
    ours = os.getpid() == process  # else a fork has come to its end
    if ours:
        if ended is not None and not isinstance(ended, SystemExit):
            trace = ended.__traceback__
            while trace is not None and trace.tb_frame.f_code.co_filename in _OURS:
                trace = trace.tb_next
            ended.__traceback__ = trace
            sys.excepthook(type(ended), ended, trace)
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
    is_module = sys.argv[0] == "-m"
    try:
        if is_module:
            del sys.argv[0]
            sys.path[0] = os.getcwd()
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        else:
            script = os.path.abspath(sys.argv[0])
            sys.path[0] = os.path.dirname(os.path.realpath(script))
            sys.modules["__main__"] = program = ModuleType("__main__")
            program.__file__ = script
            with open_code(script) as file:
                code = compile(file.read(), script, "exec")
            exec(code, vars(program))
    except BaseException as error:  # KeyboardInterrupt, too: it is raised again, after the report
        return error
    return None


def _show(report: Report, settings: dict[str, Any]) -> None:
    sys.stdout.flush()
    here = os.getcwd()
    os.chdir(settings["folder"])  # to which the report's paths are relative, wherever the script has gone
    text = FORMATS[settings["format"]](report)
    os.chdir(here)
    if settings["report"]:
        Path(settings["report"]).write_text(f"{text}\n", encoding="utf-8")
    else:
        print(text, file=sys.stderr)
