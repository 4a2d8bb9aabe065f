"""``xdevice fits``: a program runs once, and a report says whether the memory of a GPU suffices.

This process starts the program, waits for it and makes the report, so that
there is one for a program that crashes, calls ``os._exit``, or starts others.
The program and its child processes write what they use into files of a folder.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from contextlib import suppress
from pathlib import Path

from xdevice.contract import ProgramStopped, Request
from xdevice.errors import VirtualDeviceError, did_you_mean
from xdevice.tools.cli.fits_report import Report
from xdevice.tools.cli.options import add_gpus, add_report, check_can_be_written
from xdevice.tools.cli.parser import Parser, fail, positive
from xdevice.tools.cli.program import Program, program_of
from xdevice.tools.cli.running import prepare, run_program, show_error
from xdevice.units import parsed_size
from xdevice.virtual.fits import process as fits_process
from xdevice.virtual.fits.estimate import Ended, estimate
from xdevice.virtual.fits.records import ENV, Folder, Options, Record
from xdevice.virtual.models import MODELS
from xdevice.virtual.refusals import RefusedExit, RefusedImportError
from xdevice.virtual.request import to_environment

_LEAST = 2 << 20  # the smallest segment of PyTorch's allocator
_LABEL = 0.08  # how far a card's memory is from what it is sold with, at most
_INTERVAL = 0.1  # seconds between two looks at the program
_GRACE = 20.0  # seconds that a program has to end after one of its processes has made its steps


def add_options(parser: Parser) -> None:
    models = textwrap.fill("Models: " + ", ".join(MODELS) + ".", 80)
    parser.epilog = f"""\
example:
  xdevice fits 24GiB train.py --batch 64
  xdevice fits --stop-after 2 rtx4090 -m package.train

PyTorch only: the program and its child processes run on virtual GPUs, which
count what PyTorch's allocator would take from a GPU. The report on stderr shows
the peak by kind and by line, what would lower it, and what is not counted.

{models}

Exit status: 0 if the program fits, 1 if it does not, 3 if that cannot be told,
2 for an error in the command line."""
    size = "the memory of the GPU, such as 24GiB, or its model"
    parser.add_argument("size", type=_size, metavar="SIZE", help=size)
    stop = "stop the program after N steps of an optimizer"
    parser.add_argument("--stop-after", type=positive, metavar="N", help=stop)
    compute = "compute values as well as shapes: a program whose memory depends on them needs it"
    parser.add_argument("--compute", action="store_true", help=compute)
    add_gpus(parser, "--gpus", "how many GPUs there are (1)", default=1)
    add_report(parser, ("text", "json"))
    parser.add_program("a Python file, or a command; -m: a module, -c: code")


def _size(text: str) -> tuple[int, str, str]:
    """The bytes of the GPU's memory, its model if the text names one, and the card that has about as much."""
    if text in MODELS:
        return MODELS[text].memory, text, ""
    if text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is a size without a unit; write {text}GiB")
    size = parsed_size(text)
    if not size:
        hint = f"write 24GiB, or one of {', '.join(MODELS)}"
        if not text[:1].isdigit():
            hint = did_you_mean(text, MODELS, hint)
        raise argparse.ArgumentTypeError(
            f"{text!r} is not the memory or the model of a GPU; {hint}"
        )
    if size < _LEAST:
        raise argparse.ArgumentTypeError(
            f"{text!r} is less than PyTorch takes of a GPU at once, {_LEAST >> 20}MiB; write 24GiB"
        )
    for name, model in MODELS.items():
        if model.memory >> 20 == size >> 20:
            return size, name, ""
    return size, "", _nearest_card(text)


def _nearest_card(text: str) -> str:
    """A sentence about the model that is sold with that memory, of which it has a little less."""
    label = parsed_size(re.sub("(?i)gi?b?$", "GiB", text))
    name, model = min(MODELS.items(), key=lambda item: abs(item[1].memory - label))
    if abs(model.memory - label) > _LABEL * label:
        return ""
    return f"no card that is known has {text}; the nearest is {name}, with {model.memory >> 20} MiB"


def main(options: argparse.Namespace) -> int:
    """Run the program, print the report, and return the status of the answer."""
    size, model, hint = options.size
    program = program_of(options.script, options.how)
    if options.report is not None:
        check_can_be_written(options.report)
    source = f"xdevice fits --gpus {options.gpus}"
    request = Request(options.gpus, stand_in=True, source=source, model=model)
    prepare(program, None, request)
    # only now: `prepare` asks each framework whether it can have the limit of a request
    to_environment(request._replace(memory=size))
    folder = Folder(Path(tempfile.mkdtemp(prefix="xdevice-fits-")))
    folder.write_options(Options(options.stop_after, options.compute))
    try:
        ended = _run(program, options, folder)
        if folder.is_refused():
            return 2
        report = Report(estimate(size, folder.records(), ended, model), hint)
    finally:
        shutil.rmtree(folder.path, ignore_errors=True)
    if options.format == "json":
        text = report.to_json()
    else:
        text = report.to_text(shutil.get_terminal_size().columns)
    if options.report is not None:
        options.report.write_text(f"{text}\n", encoding="utf-8")
    else:
        print(text, file=sys.stderr)
    return report.status


def _run(program: Program, options: argparse.Namespace, folder: Folder) -> Ended:
    command = [*program.run_by(sys.executable), *options.args]
    if not program.is_command:
        observer = ["-c", "from xdevice.tools.cli.fits import observe; observe()", program.title]
        command = [sys.executable, *observer, *program.words, *options.args]
    sys.stdout.flush()
    process = subprocess.Popen(command, env=os.environ | {ENV: str(folder.path)})
    signal.signal(signal.SIGINT, lambda number, frame: _pass_on(process, number))
    signal.signal(signal.SIGTERM, lambda number, frame: process.send_signal(number))
    while process.poll() is None:
        with suppress(subprocess.TimeoutExpired):
            process.wait(_INTERVAL)
        end = _end_of_program(folder)
        stopped_since = folder.stopped_since()
        is_late = stopped_since is not None and stopped_since > _GRACE
        if is_late or (end is not None and end.stopped):
            _terminate(folder)  # or Python would wait for its children
        if is_late:
            process.terminate()
    if any(use.undecided for record in folder.records() for _, use in record.uses):
        return Ended("the program was stopped")
    if folder.stopped_since() is not None:
        return Ended(f"the program was stopped after {options.stop_after} steps of an optimizer")
    return _how_it_ended(process.returncode, _end_of_program(folder))


def _how_it_ended(status: int, end: Record | None) -> Ended:
    if end is not None and end.stopped:
        return Ended(f"the program was {end.stopped}")
    if status < 0:
        return Ended(f"the program was ended by {signal.Signals(-status).name}", has_failed=True)
    if end is not None and end.error:
        return Ended(f"the program {end.error}", has_failed=True)
    if status:
        return Ended(f"the program ended with status {status}", has_failed=True)
    return Ended("the program ended by itself", is_complete=True)


def _end_of_program(folder: Folder) -> Record | None:
    """What the program's own process has written; ``None`` if it has not ended, or crashed."""
    for record in folder.records():
        if record.is_program and record.ended is not None:
            return record
    return None


def _terminate(folder: Folder) -> None:
    """Ask every process that still runs to end."""
    for record in folder.records():
        if record.ended is None:
            with suppress(OSError):
                os.kill(record.pid, signal.SIGTERM)


def _pass_on(process: subprocess.Popen[bytes], number: int) -> None:
    """Pass on Ctrl-C, unless a terminal sends it to the program as well."""
    try:
        is_from_terminal = os.tcgetpgrp(0) == os.getpgrp()
    except (OSError, AttributeError):
        is_from_terminal = False
    if not is_from_terminal:
        process.send_signal(number)


def observe() -> None:
    """Run the program as Python would, in its process, and write down how it ended."""
    title = sys.argv[1]
    del sys.argv[:2]
    process = os.getpid()
    fits_process.begin_program(title)
    error = run_program()
    if os.getpid() != process:  # a fork of the program
        if error is not None:
            raise error
        return
    if isinstance(error, RefusedExit | RefusedImportError | VirtualDeviceError):
        fits_process.refuse_program()  # nothing has run that could be reported
        if isinstance(error, VirtualDeviceError):
            fail(str(error))
        sys.exit(2)
    has_failed = error is not None and not isinstance(
        error, SystemExit | KeyboardInterrupt | ProgramStopped
    )
    if error is not None and has_failed:
        show_error(error)
    fits_process.end_program(*_end(error))
    if isinstance(error, SystemExit):
        raise error
    sys.exit(int(has_failed))


def _end(error: BaseException | None) -> tuple[str, str]:
    """How the program failed, and how it was stopped; both empty if it ended by itself."""
    if error is None or (isinstance(error, SystemExit) and not error.code):
        return "", ""
    if isinstance(error, KeyboardInterrupt):
        return "", "interrupted"
    if isinstance(error, ProgramStopped):
        return "", "stopped after its steps"
    if isinstance(error, SystemExit):
        status = error.code if isinstance(error.code, int) else 1  # Python prints other values
        return f"ended with status {status}", ""
    return f"ended with {type(error).__name__}", ""
