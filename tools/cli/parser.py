"""argparse with this project's errors, and the functions that read the values of options."""

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, NoReturn, TypeVar

from xdevice.errors import did_you_mean

N = TypeVar("N", int, float)

HOW = ("-m", "-c")  # in place of a file: the program is a module, or code
DASHES = tuple("-\u2010\u2011\u2012\u2013\u2014\u2212")  # what word processors make of a hyphen


class Parser(argparse.ArgumentParser):
    """argparse with errors that name what is unknown and what was probably meant.

    If the command starts a program, its options stand before the program, and
    everything after that is the program's.
    """

    def __init__(self, **settings: Any) -> None:
        self.options: dict[str, argparse.Action] = {}  # each spelling of each option
        self.positionals: list[argparse.Action] = []
        self._starts_program = False
        settings.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(allow_abbrev=False, **settings)

    def add_argument(self, *names: Any, **settings: Any) -> argparse.Action:
        action = super().add_argument(*names, **settings)
        self.options.update(dict.fromkeys(action.option_strings, action))
        if not action.option_strings:
            self.positionals.append(action)
        return action

    def add_program(self, about: str, name: str = "PROGRAM") -> None:
        """Let the command start a program: call it after the other positional arguments are added."""
        before = "".join(f"{action.metavar} " for action in self.positionals)
        self.usage = f"{self.prog} [options] {before}[-m | -c] {name} [ARGS ...]"
        self.add_argument("script", metavar=name, help=about)
        self._starts_program = True

    def parse(self, words: Sequence[str]) -> argparse.Namespace:
        """The options. If there is a program: also ``script``, its ``args``, and ``how`` it starts."""
        if not self._starts_program:
            options, unknown = self.parse_known_args(words)
            if unknown:
                self.unknown(unknown[0])
            return options
        start = self._start_of_program(words)
        program = self._without_python(words[start:])
        how = ""
        if program and program[0] in HOW:
            how, *program = program
        # After "--", a script is not taken for an option.
        options = self.parse_args([*words[:start], "--", *program[:1]])
        options.how, options.args = how, program[1:]
        return options

    def _start_of_program(self, words: Sequence[str]) -> int:
        """The index of the program's first word: a file, or -m or -c."""
        position = 0
        for action in self.positionals:
            while position < len(words) and words[position].startswith(DASHES):
                if words[position] in HOW:
                    return position
                if words[position] == "--":
                    return position
                position += self._number_of_words(words[position])
            if action.dest != "script":
                position += 1
        return min(position, len(words))

    def _number_of_words(self, word: str) -> int:
        """The number of words of an option with its value: 1 or 2."""
        option, equals, _ = word.partition("=")
        has_joined_value = word[1] != "-" and len(word) > 2 and word[:2] in self.options  # -n2
        if has_joined_value:
            return 1
        if option not in self.options:
            self.unknown(word)
        return 1 if equals or self.options[option].nargs == 0 else 2

    def _without_python(self, words: Sequence[str]) -> list[str]:
        """``train.py`` for ``python train.py``: the Python that runs xdevice runs it."""
        program = [word for word in words[:1] if word != "--"] + list(words[1:])
        if program and re.fullmatch(r"python[\d.]*(\.exe)?", program[0]):
            python = program.pop(0)
            if not program or (program[0].startswith("-") and program[0] not in HOW):
                self.error(f"{python!r} takes a script here, or -m or -c, and no other option")
        return program

    def error(self, message: str) -> NoReturn:
        if "; " not in message and not message.endswith("?"):  # it does not say what to type
            message += f"; {self._see_help()}"
        self.exit(fail(message))

    def _see_help(self) -> str:
        return f"{self.prog} --help shows what to type"

    def unknown(self, word: str) -> NoReturn:
        """Exit with the error about a word that the command does not take."""
        if not word.startswith(DASHES):
            self.error(f"unexpected argument {word!r}")
        option = word.partition("=")[0]
        long_options = [name for name in self.options if len(name) > 2]
        hint = did_you_mean(option, long_options, self._see_help())
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
