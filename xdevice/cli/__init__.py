"""The command line: ``xdevice info``, ``doctor``, ``run``, ``bench``, ``launch``, ``virtual``."""

from __future__ import annotations

import argparse
import io
import sys
from typing import TYPE_CHECKING, Any, NoReturn

from xdevice._version import __version__
from xdevice.cli.script import script_position
from xdevice.errors import XDeviceError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

USAGE_ERROR = 2

_RUN_HELP = """\
Options come before or after SCRIPT. An option that xdevice run does not know goes to the script,
and so does everything after --.

--virtual-gpus N gives every framework N virtual GPUs. With --stand-in they answer to the framework's
own names for its GPUs, so that a script written for CUDA runs unedited. It then runs once, under the
frameworks that it imports itself: options come before SCRIPT, and everything after it goes to the
script. --backend NAME is for a script whose imports do not decide, as one that imports Keras.

Exit status: 0 if the script succeeds everywhere, 1 if it fails somewhere (with --strict also if
outputs differ), 2 for a mistake in the command, 130 after Ctrl-C.

Wall time is that of the whole process, imports included. Peak memory is that of the script and all
it starts: the most that samples have seen at once, or the kernel's figure for the script if larger.

Outputs are compared without colours and other control characters, and of a line written over the
last state is taken. What a failed run prints is not compared but shown apart. The first mebibyte
and 2000 lines of each output count. A script that prints over 256 mebibytes is stopped, and so are
all processes, daemons too, that a script leaves running when it ends.

--env tox makes each framework's environment ready with tox, as the project in this folder
configures it, and runs the script with that environment's Python. Names of environments are those
of the frameworks; all means those that the project has."""


_BENCH_HELP = """\
xdevice bench --list names the experiments. Each framework has a process of its own, one after the
other. Sizes are the lessons' own times the scale, and smaller where memory is short.

Every time is that of work that is done: all devices have been waited for. It is the median of up to
five turns, in which an experiment's lines are timed one after the other; where the quartiles of the
same work differ by more than a factor of 2, a line says that the machine is too busy. The ratio to the CPU is the
time of an experiment's first line, on the CPU, over this line's.

Exit status: 0 if all went well, 1 if a framework or an experiment failed, 2 for a mistake in the
command, 130 after Ctrl-C. An experiment that a framework cannot do, on two devices where there is
one, is skipped with the reason."""


_LAUNCH_HELP = """\
Options come before SCRIPT; everything after it goes to the script. Each process finds its place in
the environment (XDEVICE_RANK, XDEVICE_WORLD_SIZE, XDEVICE_LOCAL_RANK …), and xdevice.distributed.init()
meets the others. On several hosts type the command on each, with its --node-rank.

Where there are several processes and OMP_NUM_THREADS is not set, it becomes each one's share of the
cores. Each line of output is shown behind its rank.

The first process that fails ends the job: all processes, with all that they have started, are asked to
stop, and killed three seconds later. The same after Ctrl-C; a second Ctrl-C kills at once.

With --restarts the job then starts again, with XDEVICE_RESTART one higher; not after Ctrl-C, --time-limit, which
is for all attempts together, or exit status 2, a mistake in the script's options. On one host only.

Exit status: 0 if all processes end with 0, else that of the one that failed (128 and the number of the
signal that killed it), 2 for a mistake in the command, 124 after --time-limit, 130 after Ctrl-C."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the exit status comes back."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # also on a terminal that cannot show a character
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = _parser()
    if not arguments:
        parser.print_help()
        return 0
    try:
        options = _parse(parser, arguments)
        return int(options.command(options))
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in ("rich", "psutil"):
            raise
        return _fail(f"the command line needs {package}; pip install rich psutil")
    except XDeviceError as error:
        return _fail(str(error))
    except BrokenPipeError:  # the reader, head or less, has had enough
        sys.stderr.close()
        return 1
    except KeyboardInterrupt:
        return 130


class _Parser(argparse.ArgumentParser):
    """argparse with the errors of the rest of the command line."""

    def error(self, message: str) -> NoReturn:
        self.exit(_fail(f"{message}; {self.prog} --help shows what to type"))


def _parse(parser: _Parser, arguments: list[str]) -> argparse.Namespace:
    """The options; for ``run``, those that are unknown go to the script."""
    if arguments[:1] == ["run"] and "--stand-in" in arguments[: (script := script_position(arguments))]:
        return _parse_before_script(parser, arguments, script)
    ours, theirs = arguments, []
    if "--" in arguments and arguments[:1] == ["run"]:
        cut = arguments.index("--")
        # the first word behind -- may be SCRIPT itself; if SCRIPT is known, it comes back as unknown
        first = cut + 2 if arguments[cut + 1 : cut + 2] and arguments[cut + 1][:1] != "-" else cut + 1
        ours, theirs = arguments[:cut] + arguments[cut + 1 : first], arguments[first:]
    options, unknown = parser.parse_known_args(ours)
    if options.name == "run" and options.stand_in:
        parser.error(_STAND_IN_GOES)
    if unknown and (options.name != "run" or ours.index(unknown[0]) < ours.index(options.script)):
        parser.error(f"unknown option {unknown[0]!r}")
    if options.name == "run":
        options.args = unknown + theirs
    return options


_STAND_IN_GOES = "--stand-in goes with --virtual-gpus N, both before SCRIPT"


def _parse_before_script(parser: _Parser, arguments: list[str], script: int) -> argparse.Namespace:
    """The options of a run in which everything after the script is the script's, also what looks like ours."""
    if "-m" in arguments[:script]:
        parser.error("--stand-in runs a script, not a module (-m); xdevice virtual install lets python -m have them")
    options = parser.parse_args([argument for argument in arguments[: script + 1] if argument != "--"])
    if not options.virtual_gpus:
        parser.error(_STAND_IN_GOES)
    options.args = arguments[script + 1 :]
    return options


def _parser() -> _Parser:
    parser = _Parser("xdevice", description="Where tensors live, under every framework.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"xdevice {__version__}")
    commands = parser.add_subparsers(dest="name", metavar="COMMAND", required=True)
    info = _command(commands, "info", "what this machine has, and what each framework sees of it")
    doctor = _command(commands, "doctor", "why a framework does not see the GPU, and what to type")
    run = _command(commands, "run", "one script under several frameworks, side by side", _RUN_HELP)
    for command in (info, doctor, run):
        command.add_argument("--json", action="store_true", help="print JSON on stdout, and nothing else there")
    for command in (info, doctor):
        _add_backend_option(command, "frameworks; all (the default) is all that xdevice knows")
        command.add_argument(
            "--timeout", type=_seconds, default=120.0, metavar="S", help="seconds that a framework may take (120)"
        )
    _add_run_options(run)
    _add_bench_options(
        _command(commands, "bench", "the lessons' experiments, timed on the CPU and on a device", _BENCH_HELP)
    )
    virtual = _command(commands, "virtual", "plug-ins for virtual GPUs, and a file that heeds XDEVICE_VIRTUAL_GPUS")
    actions = "build compiles plug-ins; install lets every Python here heed the variable; status says whether one does"
    virtual.add_argument("action", choices=["build", "install", "uninstall", "status"], help=actions)
    virtual.add_argument("--to", type=_file, metavar="FOLDER", help="build: compile into FOLDER, for XDEVICE_PLUGINS")
    _add_backend_option(virtual, "build: frameworks; all (the default) is all that are installed")
    _add_launch_options(
        _command(commands, "launch", "one script in many processes, on one host or several", _LAUNCH_HELP)
    )
    return parser


def _command(commands: Any, name: str, summary: str, epilog: str | None = None) -> argparse.ArgumentParser:
    def start(options: argparse.Namespace) -> int:
        from importlib import import_module  # rich and psutil, which `xdevice --version` can do without

        function: Callable[[argparse.Namespace], int] = import_module(f"xdevice.cli.{name}").main
        return function(options)

    command: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.set_defaults(command=start)
    return command


def _add_run_options(run: argparse.ArgumentParser) -> None:
    run.usage = "xdevice run SCRIPT [ARGS ...] [options] [-- ARGS ...]"
    add = run.add_argument
    add("script", metavar="SCRIPT", help="a Python file; XDEVICE_BACKEND names the framework in its environment")
    _add_backend_option(run, "frameworks; all (the default) is all that are installed")
    add("--jobs", type=_positive, metavar="N", help="how many at once (half of the processor's threads)")
    add("--timeout", type=_seconds, metavar="S", help="stop a run after so many seconds")
    add("--normalize", action="store_true", help="take all spellings of a device for one: cuda:0, gpu(0), Place(gpu:0)")
    equal = "numbers are equal within T of their size, or within T/1000 (1e-5); whole ones only exactly"
    add("--tolerance", type=_tolerance, default=1e-5, metavar="T", help=equal)
    add("--strict", action="store_true", help="exit with 1 also if outputs differ")
    add("--virtual-gpus", type=_positive, metavar="N", help="give every framework that can have them N virtual GPUs")
    add("--stand-in", action="store_true", help="let them stand in for real GPUs; the script runs once, unedited")
    add("--env", choices=["tox"], metavar="tox", help="run each in its tox environment instead of the present one")


def _add_bench_options(bench: argparse.ArgumentParser) -> None:
    add = bench.add_argument
    add("experiments", nargs="*", metavar="NAME", help="experiments; all if none is named")
    _add_backend_option(bench, "frameworks; all (the default) is all that are installed")
    add("--device", metavar="D", help="what is compared with the CPU (the first GPU, else the CPU itself)")
    add("--scale", type=_scale, default=0.1, metavar="S", help="1 is the lessons' own size and number of times (0.1)")
    add("--timeout", type=_seconds, metavar="S", help="stop a framework after so many seconds")
    add("--json", type=_file, metavar="FILE", help="write the results, with versions and devices, into a file")
    add("--plot", type=_file, metavar="FILE", help="draw the times: a .png, .svg or .pdf for each experiment")
    add("--dark", action="store_true", help="draw for a dark slide")
    add("--list", action="store_true", help="say which experiments there are, and do nothing")


def _add_launch_options(launch: argparse.ArgumentParser) -> None:
    launch.usage = "xdevice launch [options] SCRIPT [ARGS ...]"
    add = launch.add_argument
    add("-n", type=_positive, default=1, metavar="N", help="processes on each host (1)")
    add("-m", action="store_true", dest="module", help="SCRIPT is a module's name, as in python -m")
    add("--backend", metavar="NAME", help="the framework, XDEVICE_BACKEND for all processes")
    add(
        "--engine",
        choices=["native", "mpi"],
        help="the framework's own (native, unless XDEVICE_ENGINE says else), or MPI",
    )
    add("--timeout", type=_seconds, metavar="S", help="seconds that a process waits for the others")
    add("--time-limit", type=_seconds, metavar="S", help="stop everything after so many seconds")
    add("--restarts", type=_count, default=0, metavar="R", help="start the job again after a failure, up to R times")
    add("--log-dir", type=_file, metavar="DIR", help="keep what each process prints in files, too")
    add("--pin", action="store_true", help="keep each process on cores of its own")
    add("--nnodes", type=_positive, metavar="N", help="how many hosts (as many as --hosts names, else 1)")
    add("--node-rank", type=_count, metavar="R", help="which of them this is, from 0")
    add("--master-addr", metavar="A", help="the first host's address (the first of --hosts)")
    add("--master-port", type=_first_port, metavar="P", help="the first of the job's ports, the same on all hosts")
    add(
        "--token-file", type=_file, metavar="FILE", help="the job's secret, the same file on all hosts; made if missing"
    )
    add("--hosts", metavar="A,B,…", help="each host's address, as the others reach it")
    add("--trust-network", action="store_true", help="let the engine listen where any process can connect to it")
    add("script", metavar="SCRIPT", help="a Python file")
    rest = add("args", nargs=argparse.REMAINDER, metavar="ARGS", help="what the script is given")
    rest.required = False  # or its absence is complained of beside that of SCRIPT


def _add_backend_option(command: argparse.ArgumentParser, help: str) -> None:
    command.add_argument("--backend", type=_names, default=[], metavar="all|A,B,…", help=help)


def _names(text: str) -> list[str]:
    """The names asked for, each once; none means all."""
    return [] if text == "all" else list(dict.fromkeys(name.strip() for name in text.split(",")))


def _positive(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return number


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 0 or more")
    return int(text)


def _first_port(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() else 0
    if not 0 < number < 2**16:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port from 1 to 65535")
    return number


def _seconds(text: str) -> float:
    number = _number(text)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return number


def _scale(text: str) -> float:
    number = _number(text)
    if not 0 < number <= 10:
        raise argparse.ArgumentTypeError(f"{text!r} is not a scale above 0 and up to 10; 1 is the lessons' own size")
    return number


def _file(text: str) -> Any:
    from pathlib import Path  # half of what `xdevice --version` would take

    return Path(text)


def _tolerance(text: str) -> float:
    number = _number(text)
    if not 0 <= number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a tolerance from 0 to below 1")
    return number


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")  # fails every comparison


def _fail(message: str) -> int:
    print(f"xdevice: error: {message}", file=sys.stderr)
    return USAGE_ERROR
