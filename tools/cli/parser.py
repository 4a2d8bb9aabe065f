"""argparse with this project's errors, and the functions that read the values of options."""

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, NoReturn, TypeVar

from xdevice.errors import did_you_mean

N = TypeVar("N", int, float)

HOW = ("-m", "-c")  # before SCRIPT, with which it is a module's name, or code
DASHES = "-\u2010\u2011\u2012\u2013\u2014\u2212"  # what word processors make of a hyphen


class Parser(argparse.ArgumentParser):
    """argparse with errors that name what is unknown and what was probably meant."""

    def __init__(self, **settings: Any) -> None:
        self.options: dict[str, argparse.Action] = {}  # each spelling of each option
        self.positionals: list[argparse.Action] = []
        self.hint = ""  # the end of an error's message, in place of the advice to read the help
        super().__init__(allow_abbrev=False, **settings)

    def add_argument(self, *names: Any, **settings: Any) -> argparse.Action:
        action = super().add_argument(*names, **settings)
        self.options.update(dict.fromkeys(action.option_strings, action))
        if not action.option_strings:
            self.positionals.append(action)
        return action

    def takes_value(self, option: str) -> bool:
        """Whether the next word is the option's value; an unknown option is taken to have one."""
        return option not in self.options or self.options[option].nargs != 0

    def script_position(self, words: Sequence[str]) -> int:
        """The index of SCRIPT, or of the -m or -c before it; the number of words without one."""
        position = 0
        while position < len(words) and words[position].startswith("-"):
            if words[position] == "--":
                return position + 1
            if words[position] in HOW:
                return position
            position += self.number_of_words(words[position])
        return min(position, len(words))

    def number_of_words(self, option: str) -> int:
        """The number of words of the option with its value: 1 or 2."""
        if option == "--" or "=" in option or self.has_joined_value(option):
            return 1
        if self.takes_value(option):
            return 2
        return 1

    def has_joined_value(self, option: str) -> bool:
        """Whether it is a short option with its value: ``-n2``."""
        return len(option) > 2 and option[1] != "-" and option[:2] in self.options

    def error(self, message: str) -> NoReturn:
        if message.endswith("?"):  # it suggests a word
            self.exit(fail(f"{message} {self.hint}".rstrip()))
        self.exit(fail(f"{message}; {self.hint or self.see_help()}"))

    def see_help(self) -> str:
        return f"{self.prog} --help shows what to type"

    def unknown(self, word: str) -> NoReturn:
        """Exit with the error about a word that the command does not take."""
        if word[:1] not in DASHES:
            self.error(f"unexpected argument {word!r}")
        option = word.partition("=")[0]
        long_options = [
            name
            for name, action in self.options.items()
            if len(name) > 2 and action.help != argparse.SUPPRESS
        ]
        hint = did_you_mean(option, long_options, self.see_help())
        self.exit(fail(f"unknown option {option!r}; {hint}"))


def fail(message: str) -> int:
    print(f"xdevice: error: {message}", file=sys.stderr)
    return 2


def names(text: str) -> list[str]:
    """The names in a list with commas, each once; the empty list for ``all``."""
    if text == "all":
        return []
    return list(dict.fromkeys(name.strip() for name in text.split(",")))


def one_of(choices: Iterable[str]) -> dict[str, Any]:
    """The arguments for argparse of an option whose value is one of these words."""
    words = list(choices)
    verb = "is" if len(words) == 1 else "are"
    listed = f"there {verb} {', '.join(words)}"

    def read(text: str) -> str:
        if text not in words:
            hint = did_you_mean(text, words, listed)
            raise argparse.ArgumentTypeError(f"{text!r} is unknown; {hint}")
        return text

    return {"type": read, "choices": words}


def nbytes(text: str) -> int:
    """The bytes of ``24GiB``; 0 for no text."""
    from xdevice.units import parsed_size  # loads `re`: only when it is needed

    size = parsed_size(text)
    if text and not size:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size in memory; write 24GiB")
    return size


def _digits(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() else -1


def _number(
    description: str, is_valid: Callable[[N], bool], convert: Callable[[str], N]
) -> Callable[[str], N]:
    """A function that reads a number for argparse, or raises the error that describes it."""

    def read(text: str) -> N:
        with suppress(ValueError):
            number = convert(text)
            if is_valid(number):
                return number
        raise argparse.ArgumentTypeError(f"{text!r} is not {description}")

    return read


positive = _number("a whole number of 1 or more", lambda number: number >= 1, _digits)
count = _number("a whole number of 0 or more", lambda number: number >= 0, _digits)
seconds = _number("a number of seconds above 0", lambda number: 0 < number < float("inf"), float)
scale = _number(
    "a scale above 0 and up to 10; 1 is the lessons' own size",
    lambda number: 0 < number <= 10,
    float,
)
tolerance = _number("a tolerance from 0 to below 1", lambda number: 0 <= number < 1, float)
