"""The commands and their options, and the script or module that a command is given."""

import argparse
import os
import re
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from xdevice._version import __version__
from xdevice.errors import ArgumentError

N = TypeVar("N", int, float)


class _Parser(argparse.ArgumentParser):
    """argparse with the errors of the rest of the command line."""

    def error(self, message: str) -> NoReturn:
        self.exit(fail(f"{message}; {self.prog} --help shows what to type"))


def parse(arguments: list[str]) -> argparse.Namespace:
    """The options; for ``run``, those that are unknown go to the script. Without arguments the help is printed."""
    parser = _parser()
    if not arguments:
        parser.print_help()
        parser.exit()
    if arguments[0] == "run":
        return _parse_run(parser, arguments)
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        parser.error(f"unknown option {unknown[0]!r}")
    return options


def _parse_run(parser: _Parser, arguments: list[str]) -> argparse.Namespace:
    """The options before SCRIPT, and behind it, too, unless the script runs once: then all of that is the script's."""
    ours, module = _without_python(arguments)
    script = _script_position(ours)
    once = not {"--stand-in", "--watch-transfers"}.isdisjoint(ours[:script])
    if once:
        options = parser.parse_args([argument for argument in ours[: script + 1] if argument != "--"])
        options.args = ours[script + 1 :]
    else:
        options = _parse_around_script(parser, ours)
    options.module = module
    if options.stand_in and not (once and options.virtual_gpus):
        parser.error("--stand-in goes with --virtual-gpus N, both before SCRIPT")
    if (options.lenient or options.races) and not options.stand_in:
        word = "lenient" if options.lenient else "races"
        parser.error(f"--{word} goes with --virtual-gpus N --stand-in, all before SCRIPT")
    if options.watch_transfers and not once:
        parser.error("--watch-transfers goes before SCRIPT")
    for name in ("bus", "max_copies", "format", "report"):
        if getattr(options, name) is not None and not options.watch_transfers:
            parser.error(f"--{name.replace('_', '-')} goes with --watch-transfers, both before SCRIPT")
    return options


def _parse_around_script(parser: _Parser, arguments: list[str]) -> argparse.Namespace:
    ours, theirs = arguments, []
    if "--" in arguments:
        cut = arguments.index("--")
        # the first word behind -- may be SCRIPT itself; if SCRIPT is known, it comes back as unknown
        first = cut + 2 if arguments[cut + 1 : cut + 2] and arguments[cut + 1][:1] != "-" else cut + 1
        ours, theirs = arguments[:cut] + arguments[cut + 1 : first], arguments[first:]
    options, unknown = parser.parse_known_args(ours)
    if unknown and ours.index(unknown[0]) < ours.index(options.script):
        parser.error(f"unknown option {unknown[0]!r}")
    options.args = unknown + theirs
    return options


def _parser() -> _Parser:
    parser = _Parser("xdevice", description="Where tensors live, under every framework.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"xdevice {__version__}")
    commands = parser.add_subparsers(dest="name", metavar="COMMAND", required=True)
    for name, summary in (
        ("info", "what this machine has, and what each framework sees of it"),
        ("doctor", "why a framework does not see the GPU, and what to type"),
    ):
        command = _command(commands, name, summary, "frameworks; all (the default) is all that xdevice knows")
        command.add_argument("--json", action="store_true", help=_JSON)
        limit = "seconds that a framework may take (120)"
        command.add_argument("--timeout", type=seconds, default=120.0, metavar="S", help=limit)
    _add_run_options(_command(commands, "run", "one script under several frameworks, side by side", _INSTALLED))
    bench = "the lessons' experiments, timed on the CPU and on a device"
    _add_bench_options(_command(commands, "bench", bench, _INSTALLED))
    virtual = "plug-ins for virtual GPUs, and a file that applies XDEVICE_VIRTUAL_GPUS"
    command = _command(commands, "virtual", virtual, f"build: {_INSTALLED}")
    actions = "build compiles plug-ins; install lets every Python here apply the variable; status says whether one does"
    command.add_argument("action", choices=["build", "install", "uninstall", "status"], help=actions)
    command.add_argument("--to", type=Path, metavar="FOLDER", help="build: compile into FOLDER, for XDEVICE_PLUGINS")
    _add_launch_options(_command(commands, "launch", "one script in many processes, on one host or several"))
    return parser


_JSON = "print JSON on stdout, and nothing else there"
_INSTALLED = "frameworks; all (the default) is all that are installed"


def _command(commands: Any, name: str, summary: str, frameworks: str = "") -> argparse.ArgumentParser:
    """The parser of a command, with ``--backend`` where it takes ``frameworks``; its help ends with a file's text."""
    file = Path(__file__).with_name(f"{name}.txt")
    epilog = file.read_text(encoding="utf-8") if file.exists() else None
    command: argparse.ArgumentParser = commands.add_parser(
        name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.", epilog=epilog, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    if frameworks:
        command.add_argument("--backend", type=names, default=[], metavar="all|A,B,…", help=frameworks)
    return command


def _add_run_options(run: argparse.ArgumentParser) -> None:
    run.usage = "xdevice run [-m] SCRIPT [ARGS ...] [options] [-- ARGS ...]"
    add = run.add_argument
    add("script", metavar="SCRIPT", help="a Python file; XDEVICE_BACKEND names the framework in its environment")
    add("--json", action="store_true", help=_JSON)
    add("--jobs", type=positive, metavar="N", help="how many at once (half of the processor's threads)")
    add("--timeout", type=seconds, metavar="S", help="stop a run after so many seconds")
    add("--normalize", action="store_true", help="take all spellings of a device for one: cuda:0, gpu(0), Place(gpu:0)")
    equal = "numbers are equal within T of their size, or within T/1000 (1e-5); whole ones only exactly"
    add("--tolerance", type=tolerance, default=1e-5, metavar="T", help=equal)
    add("--strict", action="store_true", help="exit with 1 also if outputs differ")
    add("--virtual-gpus", type=positive, metavar="N", help="give every framework that can have them N virtual GPUs")
    add("--stand-in", action="store_true", help="let them stand in for real GPUs; the script runs once, unedited")
    add("--lenient", action="store_true", help="with --stand-in: compute what real GPUs refuse, where the CPU can")
    add("--races", action="store_true", help="with --stand-in: streams that do not wait for one another are an error")
    add("--watch-transfers", action="store_true", help="say which lines copy between devices; the script runs once")
    add("--bus", metavar="B", help="with it: what a copy is said to cost (25GB/s,10us)")
    add("--max-copies", type=count, metavar="N", help="with it: exit with 1 if more copies are made")
    add("--format", choices=["text", "json", "sarif", "github"], help="with it: of the report (text)")
    add("--report", type=Path, metavar="FILE", help="with it: write the report into FILE, not on stderr")
    add("--env", choices=["tox"], metavar="tox", help="run each in its tox environment instead of the present one")


def _add_bench_options(bench: argparse.ArgumentParser) -> None:
    add = bench.add_argument
    add("experiments", nargs="*", metavar="NAME", help="experiments; all if none is named")
    add("--device", metavar="D", help="what is compared with the CPU (the first GPU, else the CPU itself)")
    add("--scale", type=scale, default=0.1, metavar="S", help="1 is the lessons' own size and number of times (0.1)")
    add("--timeout", type=seconds, metavar="S", help="stop a framework after so many seconds")
    add("--json", type=Path, metavar="FILE", help="write the results, with versions and devices, into a file")
    add("--plot", type=Path, metavar="FILE", help="draw the times: a .png, .svg or .pdf for each experiment")
    add("--dark", action="store_true", help="draw for a dark slide")
    add("--list", action="store_true", help="say which experiments there are, and do nothing")


def _add_launch_options(launch: argparse.ArgumentParser) -> None:
    launch.usage = "xdevice launch [options] SCRIPT [ARGS ...]"
    add = launch.add_argument
    add("-n", type=positive, default=1, metavar="N", help="processes on each host (1)")
    add("-m", action="store_true", dest="module", help="SCRIPT is a module's name, as in python -m")
    add("--backend", metavar="NAME", help="the framework, XDEVICE_BACKEND for all processes")
    engine = "the framework's own (native, unless XDEVICE_ENGINE says else), or MPI"
    add("--engine", choices=["native", "mpi"], help=engine)
    add("--timeout", type=seconds, metavar="S", help="seconds that a process waits for the others")
    add("--time-limit", type=seconds, metavar="S", help="stop everything after so many seconds")
    add("--restarts", type=count, default=0, metavar="R", help="start the job again after a failure, up to R times")
    add("--log-dir", type=Path, metavar="DIR", help="keep what each process prints in files, too")
    add("--pin", action="store_true", help="keep each process on cores of its own")
    add("--nnodes", type=positive, metavar="N", help="how many hosts (as many as --hosts names, else 1)")
    add("--node-rank", type=count, metavar="R", help="which of them this is, from 0")
    add("--master-addr", metavar="A", help="the first host's address (the first of --hosts)")
    add("--master-port", type=first_port, metavar="P", help="the first of the job's ports, the same on all hosts")
    add("--token-file", type=Path, metavar="FILE", help="the job's secret, the same file on all hosts; made if missing")
    add("--hosts", metavar="A,B,…", help="each host's address, as the others reach it")
    add("--trust-network", action="store_true", help="let the engine listen where any process can connect to it")
    add("script", metavar="SCRIPT", help="a Python file")
    rest = add("args", nargs=argparse.REMAINDER, metavar="ARGS", help="what the script is given")
    rest.required = False  # or an error about SCRIPT would name it too


def program_of(name: str, module: bool) -> list[str]:
    """What Python is given to run a script, a command's Python file on PATH (``torchrun``), or a module (``-m``)."""
    if module:
        package = name.partition(".")[0]
        # python -m looks in the present folder, too, and asks the hooks of editable installs
        if PathFinder.find_spec(package, [os.getcwd(), *sys.path]) is None and find_spec(package) is None:
            raise ArgumentError(f"no module {package!r} here; without -m a script is given by its path")
        return ["-m", name]
    if Path(name).is_file():
        return [name]
    command = shutil.which(name) if Path(name).name == name else None
    if command is not None:
        with open(command, "rb") as file:
            if file.read(2) == b"#!" and b"python" in file.read(512):  # a Python file, as pip installs them
                return [command]
    what = "is a folder, not a script" if Path(name).is_dir() else "does not exist"
    raise ArgumentError(f"{name!r} {what}; give the path of a Python file, as seen from {str(Path.cwd())!r}")


def _without_python(arguments: list[str]) -> tuple[list[str], bool]:
    """The arguments of ``run`` with SCRIPT for ``python SCRIPT`` or ``-m SCRIPT``, and whether -m was there."""
    at = _script_position(arguments)
    options, words = arguments[:at], arguments[at:]
    if words and re.fullmatch(r"python[\d.]*(\.exe)?", os.path.basename(words[0]), re.IGNORECASE):
        python, *words = words
        folder = os.path.dirname(python)
        if folder and os.path.abspath(folder) != os.path.dirname(sys.executable):
            why = f"{python!r} is not the Python that xdevice runs scripts with, {sys.executable!r}"
            raise ArgumentError(f"{why}; leave it out, or type {python} -m xdevice run SCRIPT")
        if not words or (words[0].startswith("-") and words[0] != "-m"):
            typed = " ".join([python, *words[:1]])
            raise ArgumentError(f"{typed!r} names no script; type xdevice run SCRIPT or xdevice run -m MODULE")
    module = words[:1] == ["-m"]
    return [*options, *words[module:]], module


_WITHOUT_VALUE = ("--stand-in", "--lenient", "--races", "--watch-transfers", "--json", "--normalize", "--strict")


def _script_position(arguments: list[str]) -> int:
    """Where SCRIPT, or a module's -m, is in the arguments of ``run`` if options come before it; else their number."""
    at = 1
    while at < len(arguments) and arguments[at].startswith("-"):
        if arguments[at] == "--":
            return at + 1
        if arguments[at] == "-m":
            return at
        at += 1 if arguments[at] in _WITHOUT_VALUE or "=" in arguments[at] else 2
    return min(at, len(arguments))


def fail(message: str) -> int:
    print(f"xdevice: error: {message}", file=sys.stderr)
    return 2


def names(text: str) -> list[str]:
    """The names asked for, each once; none means all."""
    return [] if text == "all" else list(dict.fromkeys(name.strip() for name in text.split(",")))


def _digits(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() else -1


def _number(what: str, fits: Callable[[N], bool], read: Callable[[str], N]) -> Callable[[str], N]:
    """What argparse calls with the text that was typed."""

    def value(text: str) -> N:
        with suppress(ValueError):
            if fits(number := read(text)):
                return number
        raise argparse.ArgumentTypeError(f"{text!r} is not {what}")

    return value


positive = _number("a whole number of 1 or more", lambda number: number >= 1, _digits)
count = _number("a whole number of 0 or more", lambda number: number >= 0, _digits)
first_port = _number("a port from 1 to 65535", lambda number: 1 <= number < 2**16, _digits)
seconds = _number("a number of seconds above 0", lambda number: 0 < number < float("inf"), float)
scale = _number("a scale above 0 and up to 10; 1 is the lessons' own size", lambda number: 0 < number <= 10, float)
tolerance = _number("a tolerance from 0 to below 1", lambda number: 0 <= number < 1, float)
