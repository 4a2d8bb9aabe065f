"""The command line: each command is the module of its name, with its options and what it does."""

import io
import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from xdevice._version import __version__
from xdevice.errors import XDeviceError, did_you_mean
from xdevice.tools.cli.parser import DASHES, Parser, fail
from xdevice.tools.cli.program import CHAPTERS

COMMANDS = {
    "info": "show what this machine has, and what each framework sees of it",
    "doctor": "explain why a framework does not see the GPU, and what to type",
    "run": "run one script under several frameworks, side by side",
    "emulate": "run a program for GPUs, unedited, on virtual GPUs",
    "watch": "report the lines of a program that copy between devices",
    "fits": "tell whether the memory of a GPU suffices for a program",
    "chapter": "run the cells of a chapter or a notebook under each framework",
    "bench": "time the lessons' experiments on the CPU and on a device",
    "launch": "run one script in many processes",
    "virtual": "manage plug-ins and requests of virtual GPUs",
}


def main(argv: Sequence[str] | None = None) -> int:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal may lack a character
    try:
        options = _parse(list(sys.argv[1:] if argv is None else argv))
        command = import_module(f"xdevice.tools.cli.{options.name}")
        return int(command.main(options))
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in ("rich", "psutil"):
            raise
        return fail(f"this command needs {package}; pip install rich psutil")
    except XDeviceError as error:
        return fail(str(error))
    except BrokenPipeError:  # the reader, such as head or less, has closed the pipe
        sys.stderr.close()
        return 1
    except KeyboardInterrupt:
        return 130


def _parse(words: list[str]) -> Namespace:
    """The command's name and its options. Without words, print the help."""
    if "_ARGCOMPLETE" in os.environ:  # the shell asks what can come next
        from xdevice.tools.cli.completion import complete

        complete(*_parser())
    name = words[0] if words else "--help"
    if name not in COMMANDS:
        _show_help_or_fail(name)
    summary = COMMANDS[name]
    description = f"{summary[0].upper()}{summary[1:]}."
    command = Parser(prog=f"xdevice {name}", description=description)
    import_module(f"xdevice.tools.cli.{name}").add_options(command)
    options = command.parse(words[1:])
    options.name = name
    return options


def _parser() -> tuple[Parser, dict[str, Parser]]:
    """The parser of the command line, and those of the commands, without their options."""
    parser = Parser(prog="xdevice", description="Where tensors live, under every framework.")
    parser.add_argument("--version", action="version", version=f"xdevice {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, summary in COMMANDS.items():
        commands.add_parser(name, help=summary)
    return parser, commands.choices


def _show_help_or_fail(word: str) -> NoReturn:
    """Answer a first word that is not a command: an option of xdevice, or a mistake."""
    parser, _ = _parser()
    if word in parser.options:
        parser.parse_args([word])
    if word[:1] in DASHES:
        parser.unknown(word)
    if Path(word).is_file():
        command = "chapter" if Path(word).suffix.lower() in CHAPTERS else "run"
        hint = f"type xdevice {command} {word}"
    else:
        listed = f"there are {', '.join(COMMANDS)}; xdevice --help says what they do"
        hint = did_you_mean(word, COMMANDS, listed)
    parser.exit(fail(f"no command {word!r}; {hint}"))
