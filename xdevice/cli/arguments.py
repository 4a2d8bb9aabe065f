"""What was typed, read: the command, its options, its script or module, and what the script is given."""

import argparse
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

from xdevice.cli.near_misses import near_miss
from xdevice.cli.options import commands
from xdevice.cli.parser import DASHES, Parser, fail
from xdevice.errors import ArgumentError, UnknownBackendError, did_you_mean

_ONCE = ("--stand-in", "--watch-transfers")
_OF_SEVERAL = ("--json", "--jobs", "--timeout", "--normalize", "--tolerance", "--strict", "--env")
_HOW = ("-m", "-c")
_PYTHON_FLAG = r"-(?P<letters>[bBdEIiOPqRsSuv]*)(?P<valued>[WX]?)(?P<value>.*)"
_WATCHED = ("--bus", "--max-copies", "--format", "--report", "--baseline", "--update-baseline")


def parse(arguments: list[str]) -> argparse.Namespace:
    """The options; for ``run``, those that are unknown go to the script. Without arguments the help is printed."""
    parser, known = commands()
    if "_ARGCOMPLETE" in os.environ:  # the shell asks what can come next
        from xdevice.cli.completion import complete

        complete(parser, known)
    if not arguments:
        parser.print_help()
        parser.exit()
    first = arguments[0]
    if first not in parser.options and first not in known:
        _unknown_command(parser, known, first)
    if first == "run":
        return _parse_run(known["run"], arguments[1:])
    command = known.get(first, parser)
    if first == "launch":
        _check_before_script(command, arguments[1:])
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        command.unknown(unknown[0])
    return options


def _unknown_command(parser: Parser, known: dict[str, Parser], word: str) -> NoReturn:
    option = word.partition("=")[0]
    owners = [name for name in ("run", *known) if option in known[name].options]
    if owners:
        parser.exit(fail(f"{option} goes behind a command; type xdevice {owners[0]} {option} …"))
    if word[0] in DASHES:
        parser.unknown(word)
    hint = did_you_mean(
        word, known, f"there are {', '.join(known)}; xdevice --help says what they do"
    )
    if Path(word).is_file():
        hint = f"type xdevice run {word}"
    parser.exit(fail(f"no command {word!r}; {hint}"))


def _parse_run(parser: Parser, arguments: list[str]) -> argparse.Namespace:
    """The options before SCRIPT, and behind it, too, unless the script runs once: then all of that is the script's."""
    ours, start = _without_python(parser, arguments)
    script = _script_position(parser, ours)
    before = _check_before_script(parser, ours)
    once = [option for option in _ONCE if option in before]
    if once:
        options = parser.parse_args([word for word in ours[: script + 1] if word != "--"])
        options.args = ours[script + 1 :]
    else:
        options = _parse_around_script(parser, ours, script)
    options.name, options.how, options.flags = "run", start.how, start.flags
    _check_together(parser, options, once, before)
    return options


def _check_together(
    parser: Parser, options: argparse.Namespace, once: Sequence[str], before: Sequence[str]
) -> None:
    """End with an error if options are there that need others, or that come to nothing beside others."""
    if options.stand_in and not (once and options.virtual_gpus):
        parser.error("--stand-in goes with --virtual-gpus N, both before SCRIPT")
    for option in ("--lenient", "--races"):
        if getattr(options, option[2:]) and not options.stand_in:
            parser.error(f"{option} goes with --virtual-gpus N --stand-in, all before SCRIPT")
    if options.watch_transfers and not once:
        parser.error("--watch-transfers goes before SCRIPT")
    for option in _WATCHED:
        if (
            getattr(options, option[2:].replace("-", "_")) is not None
            and not options.watch_transfers
        ):
            parser.error(f"{option} goes with --watch-transfers, both before SCRIPT")
    if options.update_baseline and options.baseline is None:
        parser.error("--update-baseline goes with --baseline FILE")
    idle = [option for option in _OF_SEVERAL if option in before]
    if once and (idle or len(options.backend) > 1):
        wrong = f"leave {idle[0]} out" if idle else "name one --backend"
        parser.exit(
            fail(f"{once[0]} runs a script once, with its own output and exit status; {wrong}")
        )


def _parse_around_script(parser: Parser, ours: list[str], script: int) -> argparse.Namespace:
    theirs: list[str] = []
    if "--" in ours:
        cut = ours.index("--")
        # the first word behind -- may be SCRIPT itself; if SCRIPT is known, it comes back as unknown
        first = cut + 2 if ours[cut + 1 : cut + 2] and ours[cut + 1][:1] != "-" else cut + 1
        ours, theirs = ours[:cut] + ours[cut + 1 : first], ours[first:]
        script -= cut < script
    behind = ours[script + 1 :]
    for word in behind:
        _check_behind_script(parser, word)
    typed = [name for name in (word.partition("=")[0] for word in behind) if name in parser.options]
    if typed:
        parser.hint = f"the script's own {typed[0]} goes behind --"
    options, unknown = parser.parse_known_args(ours)
    options.args = unknown + theirs
    if "--backend" in typed:
        _check_backends(parser, options.backend)
    return options


def _check_before_script(parser: Parser, words: list[str]) -> list[str]:
    """The options before SCRIPT by name; an error if one is unknown."""
    script, found, at = _script_position(parser, words), list[str](), 0
    while at < script:
        option = words[at].partition("=")[0]
        if option not in parser.options and option != "--" and not _is_glued(parser, option):
            parser.unknown(option)
        found.append(option)
        at += _length(parser, words[at])
    word = words[script] if script < len(words) else ""
    if word[:1] in DASHES[1:] and word and not Path(word).exists():
        parser.unknown(word)
    return found


def _check_behind_script(parser: Parser, word: str) -> None:
    option, equals, _ = word.partition("=")
    if equals and option in parser.options and not parser.takes_value(option):
        parser.exit(fail(f"{option} takes no value; to give it to the script, type -- {word}"))
    meant = near_miss(word, parser)
    if meant is not None:
        place = " before SCRIPT" if meant in (*_ONCE, *_WATCHED, "--lenient", "--races") else ""
        own = f"to give it to the script, type -- {word}"
        parser.exit(fail(f"unknown option {word!r}; did you mean {meant!r}{place}? {own}"))


def _check_backends(parser: Parser, asked: Sequence[str]) -> None:
    from xdevice.framework.adapters import find

    try:
        for name in asked:
            find(name)
    except UnknownBackendError as error:
        parser.error(str(error))


class _Start(NamedTuple):
    how: str  # what SCRIPT is: "" for a file, "-m" for a module, "-c" for code
    flags: list[str]  # Python's own options


def _without_python(parser: Parser, arguments: list[str]) -> tuple[list[str], _Start]:
    """The arguments with SCRIPT for ``python -u SCRIPT``, and how Python is to run it."""
    at = _script_position(parser, arguments)
    options, words = arguments[:at], arguments[at:]
    flags: list[str] = []
    if words and re.fullmatch(r"python[\d.]*(\.exe)?", os.path.basename(words[0]), re.IGNORECASE):
        python, *words = words
        folder = os.path.dirname(python)
        if folder and os.path.abspath(folder) != os.path.dirname(sys.executable):
            why = f"{python!r} is not the Python that xdevice runs scripts with, {sys.executable!r}"
            raise ArgumentError(f"{why}; leave it out, or type {python} -m xdevice run SCRIPT")
        number = _python_flags(words)
        flags, words = words[:number], words[number:]
        if not words or (words[0].startswith("-") and words[0] not in _HOW):
            typed = " ".join([python, *flags, *words[:1]])
            raise ArgumentError(
                f"{typed!r} names no script; type xdevice run SCRIPT or xdevice run -m MODULE"
            )
    how = words[0] if words and words[0] in _HOW else ""
    return [*options, *words[bool(how) :]], _Start(how, flags)


def _python_flags(words: Sequence[str]) -> int:
    """The number of words, from the first, that are options of Python's own, with their values."""
    number = 0
    while number < len(words):
        flag = re.fullmatch(_PYTHON_FLAG, words[number])
        if flag is None or words[number] == "-" or (flag["value"] and not flag["valued"]):
            break
        ignored = {"E", "I", "S"}.intersection(flag["letters"])
        if ignored:
            raise ArgumentError(
                f"python -{min(ignored)} ignores the environment, which tells the script its framework "
                "and its virtual GPUs; leave it out"
            )
        number += 2 if flag["valued"] and not flag["value"] else 1
    return number


def _script_position(parser: Parser, words: Sequence[str]) -> int:
    """Where SCRIPT, or the -m or -c before it, is if options come before it; else the number of words."""
    at = 0
    while at < len(words) and words[at].startswith("-"):
        if words[at] == "--":
            return at + 1
        if words[at] in _HOW:
            return at
        at += _length(parser, words[at])
    return min(at, len(words))


def _length(parser: Parser, option: str) -> int:
    """How many words it is, with its value."""
    alone = option == "--" or "=" in option or _is_glued(parser, option)
    return 1 if alone or not parser.takes_value(option) else 2


def _is_glued(parser: Parser, option: str) -> bool:
    """Whether it is a short option with its value: ``-n2``."""
    return len(option) > 2 and option[1] != "-" and option[:2] in parser.options
