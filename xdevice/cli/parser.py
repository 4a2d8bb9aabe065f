"""argparse with this project's errors, and what the values of options are read with."""

import argparse
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, NoReturn, TypeVar

from xdevice.errors import did_you_mean

N = TypeVar("N", int, float)

DASHES = "-\u2010\u2011\u2012\u2013\u2014\u2212"  # what word processors make of a hyphen


class Parser(argparse.ArgumentParser):
    """argparse with the errors of the rest of the command line: what is not known, what was probably meant."""

    def __init__(self, **settings: Any) -> None:
        self.options: dict[str, argparse.Action] = {}  # each spelling of each option
        self.positionals: list[argparse.Action] = []
        self.hint = ""  # how an error ends, where more is known than the help
        super().__init__(allow_abbrev=False, **settings)

    def add_argument(self, *names: Any, **settings: Any) -> argparse.Action:
        action = super().add_argument(*names, **settings)
        self.options.update(dict.fromkeys(action.option_strings, action))
        if not action.option_strings:
            self.positionals.append(action)
        return action

    def takes_value(self, option: str) -> bool:
        """Whether the next word is the option's value, and not the next option; so of an unknown one."""
        return option not in self.options or self.options[option].nargs != 0

    def error(self, message: str) -> NoReturn:
        asks = message.endswith("?")
        hint = self.hint or ("" if asks else f"{self.prog} --help shows what to type")
        self.exit(fail(f"{message}{' ' if asks else '; '}{hint}".rstrip()))

    def unknown(self, word: str) -> NoReturn:
        """End with the error about a word that is no option, nor anything else that the command takes."""
        if word[:1] not in DASHES:
            self.error(f"unexpected argument {word!r}")
        option = word.partition("=")[0]
        known = [each for each in self.options if len(each) > 2]
        help_shows = f"{self.prog} --help shows what to type"
        self.exit(fail(f"unknown option {option!r}; {did_you_mean(option, known, help_shows)}"))


def fail(message: str) -> int:
    print(f"xdevice: error: {message}", file=sys.stderr)
    return 2


def names(text: str) -> list[str]:
    """The names asked for, each once; none means all."""
    return [] if text == "all" else list(dict.fromkeys(name.strip() for name in text.split(",")))


def one_of(known: Iterable[str]) -> dict[str, Any]:
    """What argparse is given for an option whose value is one of these words."""
    words = list(known)

    def read(text: str) -> str:
        if text not in words:
            there = f"there is {words[0]}" if len(words) == 1 else f"there are {', '.join(words)}"
            raise argparse.ArgumentTypeError(
                f"{text!r} is unknown; {did_you_mean(text, words, there)}"
            )
        return text

    return {"type": read, "choices": words}


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
scale = _number(
    "a scale above 0 and up to 10; 1 is the lessons' own size",
    lambda number: 0 < number <= 10,
    float,
)
tolerance = _number("a tolerance from 0 to below 1", lambda number: 0 <= number < 1, float)
