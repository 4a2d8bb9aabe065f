"""The options that several commands have."""

from argparse import ArgumentTypeError
from collections.abc import Sequence
from pathlib import Path

from xdevice.errors import ArgumentError
from xdevice.tools.cli.parser import Parser, names, one_of, positive, seconds
from xdevice.virtual import request

JSON = "print JSON on stdout, and nothing else"
ALL_INSTALLED = "frameworks; all (the default): those installed"
ALL_KNOWN = "frameworks; all (the default): those xdevice knows"


def add_backends(parser: Parser, about: str) -> None:
    parser.add_argument("--backend", type=names, default=[], metavar="all|A,B,…", help=about)


def add_backend(parser: Parser) -> None:
    framework = "the program's framework, where it imports none itself"
    parser.add_argument("--backend", metavar="NAME", help=framework)


def add_probing(parser: Parser) -> None:
    """The options of a command that asks each framework in a process of its own."""
    add_backends(parser, ALL_KNOWN)
    parser.add_argument("--json", action="store_true", help=JSON)
    limit = "stop a framework after S seconds (120)"
    parser.add_argument("--timeout", type=seconds, default=120.0, metavar="S", help=limit)


def add_report(parser: Parser, formats: Sequence[str]) -> None:
    form = f"{', '.join(formats)} (text)"
    parser.add_argument("--format", **one_of(formats), default="text", metavar="F", help=form)
    place = "write the report into FILE, not to stderr"
    parser.add_argument("--report", type=Path, metavar="FILE", help=place)


def check_can_be_written(file: Path) -> None:
    """Raise an error if the file cannot be written, before the program runs for an hour."""
    try:
        is_new = not file.exists()
        # Permissions do not tell, above all not for root.
        file.open("ab").close()
    except OSError as error:
        raise ArgumentError(f"{str(file)!r} cannot be written: {error.strerror}") from error
    if is_new:
        file.unlink()


def add_gpus(parser: Parser, option: str, about: str, default: int | None = None) -> None:
    def number(text: str) -> int:
        try:
            return request.checked(positive(text), f"{option} {text}")
        except ArgumentError as error:
            raise ArgumentTypeError(str(error)) from None

    parser.add_argument(option, type=number, default=default, metavar="N", help=about)
