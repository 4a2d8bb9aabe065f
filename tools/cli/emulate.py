"""``xdevice emulate``: a program for GPUs runs once, unedited, on virtual GPUs."""

import argparse
import sys

from xdevice.contract import Request
from xdevice.tools.cli.options import add_backend, add_gpus
from xdevice.tools.cli.parser import Parser, one_of
from xdevice.tools.cli.program import program_of
from xdevice.tools.cli.running import become, prepare
from xdevice.virtual import children
from xdevice.virtual.models import MODELS


def add_options(parser: Parser) -> None:
    parser.epilog = """\
example:
  xdevice emulate --gpus 2 train.py --epochs 3
  xdevice emulate --model t4 -m package.train

The virtual GPUs have the framework's own names for its GPUs, and refuse what
real GPUs refuse. What they compute, the CPU computes. PROGRAM is a Python
file, a folder with a __main__.py, or a command, such as torchrun or ./train.sh,
whose Python programs have the GPUs. It keeps its output and its exit status;
everything after it is its own.

Exit status: the program's; 2 for an error in the command line."""
    add_gpus(parser, "--gpus", "how many GPUs there are (2)", default=2)
    models = f"what they are: {', '.join(MODELS)}"
    parser.add_argument("--model", **one_of(MODELS), metavar="NAME", help=models)
    lenient = "compute what real GPUs refuse, if the CPU can"
    parser.add_argument("--lenient", action="store_true", help=lenient)
    races = "PyTorch: an error if streams use a tensor without waiting"
    parser.add_argument("--races", action="store_true", help=races)
    add_backend(parser)
    parser.add_program("a Python file, or a command; -m: a module, -c: code")


def main(options: argparse.Namespace) -> int:
    request = Request(
        options.gpus,
        stand_in=True,
        source=f"--gpus {options.gpus}",
        lenient=options.lenient,
        races=options.races,
        model=options.model or "",
    )
    children.give_to_program(request)  # first: nvidia-smi is among the commands
    program = program_of(options.script, options.how)
    prepare(program, options.backend, request)
    return become([*program.run_by(sys.executable), *options.args])
