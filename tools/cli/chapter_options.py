"""The options of ``xdevice run CHAPTER``: a chapter in Markdown, or a Jupyter notebook.

They are known only if SCRIPT is a chapter, because scripts have options of
their own with such names.
"""

import argparse
import os
from argparse import RawDescriptionHelpFormatter
from collections.abc import Sequence
from pathlib import Path

from xdevice.tools.cli.parser import Parser, names, positive, seconds
from xdevice.errors import ArgumentError

MOST_SEEDS = 9
SUFFIXES = (".md", ".markdown", ".ipynb")
_UNREAD = (".qmd", ".rmd", ".rst", ".mdx", ".myst")  # other formats of chapters

_FLAGS_FOR_SCRIPTS = ("--normalize", "--watch-transfers", "--races", "--update-baseline")
_VALUES_FOR_SCRIPTS = (
    "--backend",
    "--tolerance",
    "--env",
    "--bus",
    "--max-copies",
    "--fits",
    "--stop-after",
    "--format",
    "--report",
)
_FOR_SCRIPTS = (*_FLAGS_FOR_SCRIPTS, *_VALUES_FOR_SCRIPTS)
_INSTEAD = {
    "--backend": "--tab",
    "--format": "--json",
    "--report": "--html FILE",
    "--fits": "jupyter nbconvert --to script NOTEBOOK, and then xdevice run --fits 24GiB SCRIPT",
}


def parse_chapter(arguments: Sequence[str]) -> argparse.Namespace | None:
    """The options if SCRIPT is a chapter, before it and after it; otherwise ``None``."""
    parser = chapter_parser()
    position = parser.script_position(arguments)
    if position >= len(arguments) or not is_chapter(arguments[position]):
        return None
    for word in arguments:
        option = word.partition("=")[0]
        if option in _FOR_SCRIPTS:
            advice = f"type {_INSTEAD[option]}" if option in _INSTEAD else "leave it out"
            raise ArgumentError(f"{option} is for scripts, and not for chapters; {advice}")
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        parser.unknown(unknown[0])
    options.name = "course"
    _check(parser, options)
    return options


def is_chapter(script: str) -> bool:
    """Whether SCRIPT is a chapter; an error if it is one in a format that cannot be run."""
    suffix = Path(script).suffix.lower()
    if suffix in _UNREAD:
        formats = "chapters in Markdown (.md) and notebooks (.ipynb)"
        raise ArgumentError(f"{script!r} cannot be run; xdevice run reads {formats}")
    return suffix in SUFFIXES


def _check(parser: Parser, options: argparse.Namespace) -> None:
    if options.stand_in and not options.virtual_gpus:
        parser.error("--stand-in goes with --virtual-gpus N")
    if options.record and options.check:
        parser.error("--record writes the outputs that --check compares with; leave one out")
    if options.outputs and not (options.record or options.check):
        parser.error("--outputs goes with --record or --check")
    for file in (options.html, options.outputs):
        if file is not None:
            check_can_be_written(file)
    for option in ("lenient", "gpu_model"):
        if getattr(options, option) and not options.stand_in:
            name = option.replace("_", "-")
            parser.error(f"--{name} goes with --virtual-gpus N --stand-in")


def check_can_be_written(file: Path) -> None:
    """An error if the file cannot be written, before the chapter runs for an hour."""
    folder = file.absolute().parent
    reason = ""
    if file.is_dir():
        reason = "it is a folder"
    elif not folder.is_dir():
        reason = f"{str(folder)!r} is not a folder"
    elif not os.access(file if file.exists() else folder, os.W_OK):
        reason = "it is read-only"
    if reason:
        raise ArgumentError(f"{str(file)!r} cannot be written: {reason}")


def _seeds(text: str) -> int:
    number = positive(text)
    if number > MOST_SEEDS:
        raise argparse.ArgumentTypeError(f"{text!r} is more than {MOST_SEEDS} seeds")
    return number


def chapter_parser() -> Parser:
    file = Path(__file__).with_name("chapter.txt")
    parser = Parser(
        prog="xdevice run",
        usage="xdevice run CHAPTER [options]",
        description="Run the cells of a chapter, under each framework that it has a tab for.",
        epilog=file.read_text(encoding="utf-8"),
        formatter_class=RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("script", metavar="CHAPTER", help="a chapter in Markdown (.md), or a notebook (.ipynb)")
    tabs = "tabs, by the names of frameworks; all (the default) means those that are installed"
    add("--tab", type=names, default=None, metavar="all|A,B,…", help=tabs)
    add("--keep-going", action="store_true", help="run the later cells after one that fails")
    seeds = "where numbers differ between tabs, run them with N seeds (3; 1 with --check)"
    add("--seeds", type=_seeds, metavar="N", help=seeds)
    page = "write a page with what each tab prints and draws, side by side, into FILE"
    add("--html", type=Path, metavar="FILE", help=page)
    add("--record", action="store_true", help="keep the outputs beside the chapter")
    check = "compare with the outputs that were kept; exit with 1 if one has changed"
    add("--check", action="store_true", help=check)
    outputs = "the file with the outputs (CHAPTER.outputs.json)"
    add("--outputs", type=Path, metavar="FILE", help=outputs)
    add("--strict", action="store_true", help="exit with 1 also if outputs differ between tabs")
    add("--jobs", type=positive, metavar="N", help="run N tabs at once (half the threads)")
    add("--timeout", type=seconds, metavar="S", help="stop a tab after S seconds")
    add("--json", action="store_true", help="print JSON on stdout, and nothing else")
    gpus = "give every framework that can have them N virtual GPUs"
    add("--virtual-gpus", type=positive, metavar="N", help=gpus)
    stand_in = "with --virtual-gpus: answer to the names of real GPUs"
    add("--stand-in", action="store_true", help=stand_in)
    lenient = "with --stand-in: compute what real GPUs refuse, if the CPU can"
    for flag in _FLAGS_FOR_SCRIPTS:  # known, so that the word after it is not its value
        add(flag, action="store_true", help=argparse.SUPPRESS)
    add("--lenient", action="store_true", help=lenient)
    model = "with --stand-in: the model of the GPUs: h100, a100, v100, gb10, rtx4090, rtx3090, a10g, l4 or t4"
    add("--gpu-model", metavar="NAME", help=model)
    return parser
