"""The commands and their options."""

from argparse import REMAINDER, RawDescriptionHelpFormatter
from pathlib import Path
from typing import Any

from xdevice._version import __version__
from xdevice.cli.parser import (
    Parser,
    count,
    first_port,
    names,
    one_of,
    positive,
    scale,
    seconds,
    tolerance,
)


def commands() -> tuple[Parser, dict[str, Parser]]:
    """The parser of the whole command line, and that of each command."""
    parser = Parser(prog="xdevice", description="Where tensors live, under every framework.")
    parser.add_argument("--version", action="version", version=f"xdevice {__version__}")
    each = parser.add_subparsers(dest="name", metavar="COMMAND", required=True)
    for name, summary in (
        ("info", "what this machine has, and what each framework sees of it"),
        ("doctor", "why a framework does not see the GPU, and what to type"),
    ):
        command = _command(
            each, name, summary, "frameworks; all (the default) is all that xdevice knows"
        )
        command.add_argument("--json", action="store_true", help=_JSON)
        limit = "seconds that a framework may take (120)"
        command.add_argument("--timeout", type=seconds, default=120.0, metavar="S", help=limit)
    _add_run_options(
        _command(each, "run", "one script under several frameworks, side by side", _INSTALLED)
    )
    bench = "the lessons' experiments, timed on the CPU and on a device"
    _add_bench_options(_command(each, "bench", bench, _INSTALLED))
    virtual = "plug-ins for virtual GPUs, and a file that applies XDEVICE_VIRTUAL_GPUS"
    command = _command(each, "virtual", virtual, f"build, status: {_INSTALLED}")
    actions = "build compiles plug-ins; install lets every Python here apply the variable; status says whether one does"
    command.add_argument(
        "action", **one_of(("build", "install", "uninstall", "status")), help=actions
    )
    command.add_argument(
        "--to", type=Path, metavar="FOLDER", help="build: compile into FOLDER, for XDEVICE_PLUGINS"
    )
    _add_launch_options(
        _command(each, "launch", "one script in many processes, on one host or several")
    )
    return parser, each.choices


_JSON = "print JSON on stdout, and nothing else there"
_INSTALLED = "frameworks; all (the default) is all that are installed"


def _command(commands: Any, name: str, summary: str, frameworks: str = "") -> Parser:
    """The parser of a command, with ``--backend`` where it takes ``frameworks``; its help ends with a file's text."""
    file = Path(__file__).with_name(f"{name}.txt")
    epilog = file.read_text(encoding="utf-8") if file.exists() else None
    command: Parser = commands.add_parser(
        name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.", epilog=epilog,
        formatter_class=RawDescriptionHelpFormatter,
    )  # fmt: skip
    if frameworks:
        command.add_argument(
            "--backend", type=names, default=[], metavar="all|A,B,…", help=frameworks
        )
    return command


def _add_run_options(run: Parser) -> None:
    run.usage = "xdevice run [-m | -c] SCRIPT [ARGS ...] [options] [-- ARGS ...]"
    add = run.add_argument
    program = "a Python file, or a command; XDEVICE_BACKEND names the framework in its environment"
    add("script", metavar="SCRIPT", help=program)
    add("--json", action="store_true", help=_JSON)
    add(
        "--jobs",
        type=positive,
        metavar="N",
        help="how many at once (half of the processor's threads)",
    )
    add("--timeout", type=seconds, metavar="S", help="stop a run after so many seconds")
    add(
        "--normalize",
        action="store_true",
        help="take all spellings of a device for one: cuda:0, gpu(0), Place(gpu:0)",
    )
    equal = (
        "numbers are equal within T of their size, or within T/1000 (1e-5); whole ones only exactly"
    )
    add("--tolerance", type=tolerance, default=1e-5, metavar="T", help=equal)
    add("--strict", action="store_true", help="exit with 1 also if outputs differ")
    add(
        "--virtual-gpus",
        type=positive,
        metavar="N",
        help="give every framework that can have them N virtual GPUs",
    )
    add(
        "--stand-in",
        action="store_true",
        help="let them stand in for real GPUs; the script runs once, unedited",
    )
    add(
        "--lenient",
        action="store_true",
        help="with --stand-in: compute what real GPUs refuse, where the CPU can",
    )
    add(
        "--races",
        action="store_true",
        help="with --stand-in: streams that do not wait for one another are an error",
    )
    add(
        "--watch-transfers",
        action="store_true",
        help="say which lines copy between devices; the script runs once",
    )
    add("--bus", metavar="B", help="with it: what a copy is said to cost (25GB/s,10us)")
    add(
        "--max-copies", type=count, metavar="N", help="with it: exit with 1 if more copies are made"
    )
    add(
        "--format",
        **one_of(("text", "json", "sarif", "github")),
        help="with it: of the report (text)",
    )
    add("--baseline", type=Path, metavar="FILE", help="with it: report what is not in FILE")
    add(
        "--update-baseline",
        action="store_true",
        default=None,
        help="with --baseline: write what is found into FILE",
    )
    add(
        "--report",
        type=Path,
        metavar="FILE",
        help="with it: write the report into FILE, not on stderr",
    )
    add(
        "--env",
        **one_of(("tox",)),
        metavar="tox",
        help="run each in its tox environment instead of the present one",
    )


def _add_bench_options(bench: Parser) -> None:
    add = bench.add_argument
    add("experiments", nargs="*", metavar="NAME", help="experiments; all if none is named")
    add(
        "--device",
        metavar="D",
        help="what is compared with the CPU (the first GPU, else the CPU itself)",
    )
    add(
        "--scale",
        type=scale,
        default=0.1,
        metavar="S",
        help="1 is the lessons' own size and number of times (0.1)",
    )
    add("--timeout", type=seconds, metavar="S", help="stop a framework after so many seconds")
    add(
        "--json",
        type=Path,
        metavar="FILE",
        help="write the results, with versions and devices, into a file",
    )
    add(
        "--plot",
        type=Path,
        metavar="FILE",
        help="draw the times: a .png, .svg or .pdf for each experiment",
    )
    add("--dark", action="store_true", help="draw for a dark slide")
    add("--list", action="store_true", help="say which experiments there are, and do nothing")


def _add_launch_options(launch: Parser) -> None:
    launch.usage = "xdevice launch [options] SCRIPT [ARGS ...]"
    add = launch.add_argument
    add("-n", type=positive, default=1, metavar="N", help="processes on each host (1)")
    module = "SCRIPT is a module's name, as in python -m"
    add("-m", action="store_const", const="-m", default="", dest="how", help=module)
    add("--backend", metavar="NAME", help="the framework, XDEVICE_BACKEND for all processes")
    engine = "the framework's own (native, unless XDEVICE_ENGINE says else), or MPI"
    add("--engine", **one_of(("native", "mpi")), help=engine)
    add("--timeout", type=seconds, metavar="S", help="seconds that a process waits for the others")
    add("--time-limit", type=seconds, metavar="S", help="stop everything after so many seconds")
    add(
        "--restarts",
        type=count,
        default=0,
        metavar="R",
        help="start the job again after a failure, up to R times",
    )
    add("--log-dir", type=Path, metavar="DIR", help="keep what each process prints in files, too")
    add("--pin", action="store_true", help="keep each process on cores of its own")
    add(
        "--nnodes",
        type=positive,
        metavar="N",
        help="how many hosts (as many as --hosts names, else 1)",
    )
    add("--node-rank", type=count, metavar="R", help="which of them this is, from 0")
    add("--master-addr", metavar="A", help="the first host's address (the first of --hosts)")
    add(
        "--master-port",
        type=first_port,
        metavar="P",
        help="the first of the job's ports, the same on all hosts",
    )
    add(
        "--token-file",
        type=Path,
        metavar="FILE",
        help="the job's secret, the same file on all hosts; made if missing",
    )
    add("--hosts", metavar="A,B,…", help="each host's address, as the others reach it")
    add(
        "--trust-network",
        action="store_true",
        help="let the engine listen where any process can connect to it",
    )
    add("script", metavar="SCRIPT", help="a Python file, or a command")
    rest = add("args", nargs=REMAINDER, metavar="ARGS", help="what the script is given")
    rest.required = False  # or an error about SCRIPT would name it too
