"""Parsing the command line: the command, its options, SCRIPT, and the script's arguments."""

import argparse
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

from xdevice.tools.cli.chapter_options import parse_chapter
from xdevice.tools.cli.near_misses import near_miss
from xdevice.tools.cli.options import commands
from xdevice.tools.cli.parser import DASHES, HOW, Parser, fail
from xdevice.errors import ArgumentError, UnknownBackendError, did_you_mean

_RUN_ONCE = ("--fits", "--watch-transfers", "--stand-in")  # options with which a script runs once
_FOR_SEVERAL_RUNS = (
    "--json",
    "--jobs",
    "--timeout",
    "--normalize",
    "--tolerance",
    "--strict",
    "--env",
)
_WITH_STAND_IN = ("--lenient", "--races", "--gpu-model")
_WITH_WATCH_TRANSFERS = ("--bus", "--max-copies", "--baseline", "--update-baseline")
_WITH_A_REPORT = ("--format", "--report")  # of --watch-transfers, or of --fits
_FORMATS_OF_FITS = ("text", "json")
_PYTHON_FLAG = r"-(?P<letters>[bBdEIiOPqRsSuv]*)(?P<valued>[WX]?)(?P<value>.*)"


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command and its options. Without arguments, print the help.

    The unknown options of ``run`` go to the script.
    """
    parser, command_parsers = commands()
    if "_ARGCOMPLETE" in os.environ:  # the shell asks what can come next
        from xdevice.tools.cli.completion import complete

        complete(parser, command_parsers)
    if not arguments:
        parser.print_help()
        parser.exit()
    first = arguments[0]
    if first not in parser.options and first not in command_parsers:
        _unknown_command(parser, command_parsers, first)
    if first == "run":
        return _parse_run(command_parsers["run"], arguments[1:])
    command = command_parsers.get(first, parser)
    if first == "launch":
        _check_before_script(command, arguments[1:])
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        command.unknown(unknown[0])
    return options


def _unknown_command(parser: Parser, commands: dict[str, Parser], word: str) -> NoReturn:
    option = word.partition("=")[0]
    for name in ("run", *commands):
        if option in commands[name].options:
            parser.exit(fail(f"{option} goes after a command; type xdevice {name} {option} …"))
    if word[0] in DASHES:
        parser.unknown(word)
    if Path(word).is_file():
        hint = f"type xdevice run {word}"
    else:
        listed = f"there are {', '.join(commands)}; xdevice --help says what they do"
        hint = did_you_mean(word, commands, listed)
    parser.exit(fail(f"no command {word!r}; {hint}"))


def _parse_run(parser: Parser, arguments: list[str]) -> argparse.Namespace:
    """The options of ``run``, which stand before SCRIPT or after it.

    If the script runs once, everything after SCRIPT is an argument of the script.
    """
    arguments = _with_joined_size(parser, arguments)
    chapter = parse_chapter(arguments)
    if chapter is not None:
        return chapter
    words, start = _without_python(parser, arguments)
    script = parser.script_position(words)
    options_before = _check_before_script(parser, words)
    run_once = next((option for option in _RUN_ONCE if option in options_before), None)
    if run_once:
        options = parser.parse_args([word for word in words[: script + 1] if word != "--"])
        options.args = words[script + 1 :]
    else:
        options = _parse_around_script(parser, words, script)
    options.name = "run"
    options.how, options.flags = start
    if options.fits is not None and run_once:
        options.virtual_gpus, options.stand_in = options.virtual_gpus or 1, True
    _check_combination(parser, options, run_once)
    if run_once:
        _check_single_run(parser, options, run_once, options_before)
    return options


def _check_combination(parser: Parser, options: argparse.Namespace, run_once: str | None) -> None:
    """Exit with an error if an option needs another one that is missing."""
    if options.stand_in and not (run_once and options.virtual_gpus):
        parser.error("--stand-in goes with --virtual-gpus N, both before SCRIPT")
    for option in _WITH_STAND_IN:
        if _value_of(option, options) and not options.stand_in:
            parser.error(f"{option} goes with --virtual-gpus N --stand-in, all before SCRIPT")
    for option in ("--watch-transfers", "--fits"):
        if _value_of(option, options) not in (None, False) and not run_once:
            parser.error(f"{option} goes before SCRIPT")
    for option in _WITH_WATCH_TRANSFERS:
        if _value_of(option, options) is not None and not options.watch_transfers:
            parser.error(f"{option} goes with --watch-transfers, both before SCRIPT")
    reports = options.watch_transfers or options.fits is not None
    for option in _WITH_A_REPORT:
        if _value_of(option, options) is not None and not reports:
            parser.error(f"{option} goes with --watch-transfers or --fits, both before SCRIPT")
    _check_fits(parser, options)
    if options.update_baseline and options.baseline is None:
        parser.error("--update-baseline goes with --baseline FILE")


def _check_fits(parser: Parser, options: argparse.Namespace) -> None:
    """Exit with an error if an option cannot be combined with ``--fits``, or needs it."""
    if options.fits is None:
        if options.stop_after is not None:
            parser.error("--stop-after goes with --fits, both before SCRIPT")
        return
    if options.watch_transfers:
        parser.exit(fail("--fits and --watch-transfers have a report each; leave one out"))
    if options.format not in (None, *_FORMATS_OF_FITS):
        listed = " and ".join(_FORMATS_OF_FITS)
        parser.exit(fail(f"--fits has no report in {options.format}; there are {listed}"))


def _check_single_run(
    parser: Parser, options: argparse.Namespace, run_once: str, options_before: Sequence[str]
) -> None:
    """Exit with an error if an option is for several runs, and the script runs once."""
    advice = ""
    if len(options.backend) > 1:
        advice = "name one --backend"
    for option in _FOR_SEVERAL_RUNS:
        if option == "--timeout" and run_once == "--fits":
            continue
        if option in options_before:
            advice = f"leave {option} out"
            if option == "--json" and run_once != "--stand-in":
                advice = "write --format json"
            break
    if advice:
        reason = f"{run_once} runs a script once, with its own output and exit status"
        parser.exit(fail(f"{reason}; {advice}"))


def _value_of(option: str, options: argparse.Namespace) -> object:
    return getattr(options, option.removeprefix("--").replace("-", "_"))


def _parse_around_script(parser: Parser, words: list[str], script: int) -> argparse.Namespace:
    """The options before and after SCRIPT; unknown ones, and all after ``--``, are the script's."""
    script_arguments: list[str] = []
    if "--" in words:
        cut = words.index("--")
        # The first word after -- may be SCRIPT itself. If SCRIPT stands before
        # --, argparse returns this word as unknown, and it goes to the script
        # all the same.
        end = cut + 1
        if end < len(words) and not words[end].startswith("-"):
            end += 1
        words, script_arguments = words[:cut] + words[cut + 1 : end], words[end:]
        if cut < script:
            script -= 1
    words_after = words[script + 1 :]
    for word in words_after:
        _check_after_script(parser, word)
    names_after = [word.partition("=")[0] for word in words_after]
    options_after = [name for name in names_after if name in parser.options]
    if options_after:
        parser.hint = f"the script's own {options_after[0]} goes after --"
    options, unknown = parser.parse_known_args(words)
    options.args = unknown + script_arguments
    if "--backend" in options_after:
        _check_backends(parser, options.backend)
    return options


def _check_before_script(parser: Parser, words: list[str]) -> list[str]:
    """The names of the options before SCRIPT; an unknown one is an error."""
    script = parser.script_position(words)
    names: list[str] = []
    position = 0
    while position < script:
        name = words[position].partition("=")[0]
        if name not in parser.options and name != "--" and not parser.has_joined_value(name):
            parser.unknown(name)
        names.append(name)
        position += parser.number_of_words(words[position])
    word = words[script] if script < len(words) else ""
    if word and word[0] in DASHES[1:] and not Path(word).exists():
        parser.unknown(word)
    return names


def _check_after_script(parser: Parser, word: str) -> None:
    """Exit with an error if the word is probably a misspelt option of xdevice."""
    option, equals, _ = word.partition("=")
    for_the_script = f"to give it to the script, type -- {word}"
    if equals and option in parser.options and not parser.takes_value(option):
        parser.exit(fail(f"{option} takes no value; {for_the_script}"))
    suggestion = near_miss(word, parser)
    if suggestion is None:
        return
    goes_before = (
        *_RUN_ONCE,
        *_WITH_WATCH_TRANSFERS,
        *_WITH_A_REPORT,
        *_WITH_STAND_IN,
        "--stop-after",
    )
    place = ""
    if suggestion in goes_before:
        place = " before SCRIPT"
    question = f"did you mean {suggestion!r}{place}?"
    parser.exit(fail(f"unknown option {word!r}; {question} {for_the_script}"))


def _check_backends(parser: Parser, names: Sequence[str]) -> None:
    from xdevice.framework.adapters import find

    try:
        for name in names:
            find(name)
    except UnknownBackendError as error:
        parser.error(str(error))


def _with_joined_size(parser: Parser, words: list[str]) -> list[str]:
    """The words with ``--fits=24GiB`` for ``--fits 24GiB``, and ``--fits=`` where no size follows.

    The size is optional, and SCRIPT may follow.
    """
    joined: list[str] = []
    position = 0
    while position < len(words) and words[position].startswith("-"):
        word = words[position]
        if word == "--" or word in HOW:
            break
        end = position + parser.number_of_words(word)
        if word == "--fits":
            sizes = [size for size in words[position + 1 : end] if _is_size(size)]
            word = f"--fits={''.join(sizes)}"
            joined.append(word)
            position += 1 + len(sizes)
        else:
            joined += words[position:end]
            position = end
    return joined + words[position:]


def _is_size(word: str) -> bool:
    """Whether a word after ``--fits`` is meant as its size: it begins with a digit."""
    return word[:1].isdigit() and not Path(word).exists()


class _Start(NamedTuple):
    """How Python starts SCRIPT."""

    how: str  # "" for a file, "-m" for a module, "-c" for code
    flags: list[str]  # Python's own options


def _without_python(parser: Parser, arguments: list[str]) -> tuple[list[str], _Start]:
    """The arguments with SCRIPT in place of ``python -u SCRIPT``, and how Python starts it."""
    script = parser.script_position(arguments)
    options, words = arguments[:script], arguments[script:]
    flags: list[str] = []
    if words and re.fullmatch(r"python[\d.]*(\.exe)?", os.path.basename(words[0]), re.IGNORECASE):
        flags, words = _split_python_command(words)
    if words and words[0] in HOW:
        how, *words = words
    else:
        how = ""
    return [*options, *words], _Start(how, flags)


def _split_python_command(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Python's own options in ``python -u SCRIPT ARGS``, and the words after them."""
    python, *words = words
    folder = os.path.dirname(python)
    if folder and os.path.abspath(folder) != os.path.dirname(sys.executable):
        reason = f"{python!r} is not the Python that xdevice runs scripts with, {sys.executable!r}"
        raise ArgumentError(f"{reason}; leave it out, or type {python} -m xdevice run SCRIPT")
    number = _python_flags(words)
    flags, words = words[:number], words[number:]
    if not words or (words[0].startswith("-") and words[0] not in HOW):
        typed = " ".join([python, *flags, *words[:1]])
        raise ArgumentError(
            f"{typed!r} names no script; type xdevice run SCRIPT or xdevice run -m MODULE"
        )
    return flags, words


def _python_flags(words: Sequence[str]) -> int:
    """The number of words at the beginning that are Python's own options and their values."""
    number = 0
    while number < len(words):
        flag = re.fullmatch(_PYTHON_FLAG, words[number])
        if flag is None or words[number] == "-" or (flag["value"] and not flag["valued"]):
            break
        ignored = {"E", "I", "S"}.intersection(flag["letters"])
        if ignored:
            raise ArgumentError(
                f"python -{min(ignored)} ignores the environment, which tells the script its "
                "framework and its virtual GPUs; leave it out"
            )
        number += 1
        if flag["valued"] and not flag["value"]:  # the value is the next word
            number += 1
    return number
