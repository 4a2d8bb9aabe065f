"""The commands and their options."""

from argparse import REMAINDER, RawDescriptionHelpFormatter
from pathlib import Path
from typing import Any

from xdevice._version import __version__
from xdevice.tools.cli.parser import (
    Parser,
    count,
    names,
    nbytes,
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
    subparsers = parser.add_subparsers(dest="name", metavar="COMMAND", required=True)
    info = "show what this machine has, and what each framework sees of it"
    _add_probe_options(_command(subparsers, "info", info, _KNOWN))
    doctor = "explain why a framework does not see the GPU, and what to type"
    _add_probe_options(_command(subparsers, "doctor", doctor, _KNOWN))
    run = "run one script under several frameworks, side by side"
    _add_run_options(_command(subparsers, "run", run, _INSTALLED))
    bench = "time the lessons' experiments on the CPU and on a device"
    _add_bench_options(_command(subparsers, "bench", bench, _INSTALLED))
    virtual = "manage virtual GPUs' plug-ins, and the file that applies XDEVICE_VIRTUAL_GPUS"
    _add_virtual_options(_command(subparsers, "virtual", virtual, f"build, status: {_INSTALLED}"))
    launch = "run one script in many processes on this host"
    _add_launch_options(_command(subparsers, "launch", launch))
    return parser, subparsers.choices


_JSON = "print JSON on stdout, and nothing else"
_INSTALLED = "frameworks; all (the default) means those that are installed"
_KNOWN = "frameworks; all (the default) means those that xdevice knows"
_WATCH = "with --watch-transfers:"
_WATCH_OR_FITS = "with --watch-transfers or --fits:"


def _command(subparsers: Any, name: str, summary: str, frameworks: str = "") -> Parser:
    """The parser of a command. Its help ends with the text of NAME.txt.

    It has the option ``--backend`` if ``frameworks`` describes its values.
    """
    file = Path(__file__).with_name(f"{name}.txt")
    command: Parser = subparsers.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=file.read_text(encoding="utf-8") if file.exists() else None,
        formatter_class=RawDescriptionHelpFormatter,
    )
    if frameworks:
        command.add_argument(
            "--backend", type=names, default=[], metavar="all|A,B,…", help=frameworks
        )
    return command


def _add_probe_options(command: Parser) -> None:
    command.add_argument("--json", action="store_true", help=_JSON)
    limit = "stop a framework after S seconds (120)"
    command.add_argument("--timeout", type=seconds, default=120.0, metavar="S", help=limit)


def _add_virtual_options(virtual: Parser) -> None:
    actions = (
        "build: compile plug-ins; install: let this Python apply the variable when it starts; "
        "uninstall: undo that; status: show both"
    )
    choices = ("build", "install", "uninstall", "status")
    virtual.add_argument("action", **one_of(choices), help=actions)
    folder = "build: compile into FOLDER, for XDEVICE_PLUGINS"
    virtual.add_argument("--to", type=Path, metavar="FOLDER", help=folder)


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
        help="run N scripts at once (half the number of the processor's threads)",
    )
    add("--timeout", type=seconds, metavar="S", help="stop a run after S seconds")
    add(
        "--normalize",
        action="store_true",
        help="treat all spellings of a device as equal: cuda:0, gpu(0), Place(gpu:0)",
    )
    equal = "relative tolerance for floats (1e-5); the absolute one is T/1000; integers are exact"
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
        help="with --virtual-gpus: answer to the names of real GPUs; the script runs once, unedited",
    )
    add(
        "--lenient",
        action="store_true",
        help="with --stand-in: compute what real GPUs refuse, if the CPU can",
    )
    add(
        "--races",
        action="store_true",
        help="with --stand-in: raise an error if streams use a tensor without waiting",
    )
    add(
        "--gpu-model",
        metavar="NAME",
        help="with --stand-in: the model of the GPUs: h100, a100, v100, gb10, rtx4090, rtx3090, a10g, l4 or t4",
    )
    add(
        "--fits",
        type=nbytes,
        metavar="[SIZE]",
        help="tell whether a GPU of this memory, 24GiB, or of --gpu-model suffices",
    )
    add(
        "--stop-after",
        type=positive,
        metavar="N",
        help="with --fits: stop the script after N steps of an optimizer",
    )
    add(
        "--watch-transfers",
        action="store_true",
        help="report the lines that copy between devices; the script runs once",
    )
    _add_watch_options(run)
    add(
        "--env",
        **one_of(("tox",)),
        metavar="tox",
        help="run each framework in its tox environment",
    )


def _add_watch_options(run: Parser) -> None:
    """The options that need ``--watch-transfers``; some go with ``--fits``, too."""
    add = run.add_argument
    add(
        "--bus", metavar="B", help=f"{_WATCH} the speed that copies are modelled with (25GB/s,10us)"
    )
    add(
        "--max-copies",
        type=count,
        metavar="N",
        help=f"{_WATCH} exit with 1 if there are more copies",
    )
    formats = ("text", "json", "sarif", "github")
    add("--format", **one_of(formats), help=f"{_WATCH_OR_FITS} the format of the report (text)")
    add(
        "--baseline",
        type=Path,
        metavar="FILE",
        help=f"{_WATCH} report only lines that are not in FILE",
    )
    updates = "with --baseline: write the lines that copy into its FILE"
    add("--update-baseline", action="store_true", default=None, help=updates)
    add(
        "--report",
        type=Path,
        metavar="FILE",
        help=f"{_WATCH_OR_FITS} write the report into FILE, not to stderr",
    )


def _add_bench_options(bench: Parser) -> None:
    add = bench.add_argument
    add("experiments", nargs="*", metavar="NAME", help="experiments; all if none is named")
    add(
        "--device",
        metavar="D",
        help="the device to compare with the CPU (the first GPU, else the CPU itself)",
    )
    add(
        "--scale",
        type=scale,
        default=0.1,
        metavar="S",
        help="sizes and repetitions, relative to the lessons' own (0.1)",
    )
    add("--timeout", type=seconds, metavar="S", help="stop a framework after S seconds")
    add(
        "--json",
        type=Path,
        metavar="FILE",
        help="write the results, with versions and devices, into FILE",
    )
    add(
        "--plot",
        type=Path,
        metavar="FILE",
        help="draw the times: a .png, .svg or .pdf for each experiment",
    )
    add("--dark", action="store_true", help="draw for a dark slide")
    add("--list", action="store_true", help="list the experiments, and exit")


def _add_launch_options(launch: Parser) -> None:
    launch.usage = "xdevice launch [options] SCRIPT [ARGS ...]"
    add = launch.add_argument
    add("-n", type=positive, default=1, metavar="N", help="the number of processes (1)")
    module = "SCRIPT is a module's name, as in python -m"
    add("-m", action="store_const", const="-m", default="", dest="how", help=module)
    add("--backend", metavar="NAME", help="the framework: sets XDEVICE_BACKEND for all processes")
    add("--timeout", type=seconds, metavar="S", help="let a process wait S seconds for the others")
    add("--time-limit", type=seconds, metavar="S", help="stop the job after S seconds")
    add(
        "--restarts",
        type=count,
        default=0,
        metavar="R",
        help="start the job again after a failure, up to R times",
    )
    add("--log-dir", type=Path, metavar="DIR", help="write each process's output into files, too")
    add("--pin", action="store_true", help="keep each process on cores of its own")
    add("script", metavar="SCRIPT", help="a Python file, or a command")
    arguments = add("args", nargs=REMAINDER, metavar="ARGS", help="the script's arguments")
    arguments.required = False  # an error about a missing SCRIPT would name ARGS, too
