"""What a shell offers after TAB: commands, options, their values, frameworks, experiments, files.

`register-python-argcomplete xdevice` prints the function of the shell, which
starts the command with ``_ARGCOMPLETE``.
"""

import os
from collections.abc import MutableMapping
from typing import Any, NoReturn

import argcomplete
from argcomplete.completers import DirectoriesCompleter

from xdevice.tools.cli.chapter_options import chapter_parser, is_chapter
from xdevice.tools.cli.parser import Parser


def complete(parser: Parser, commands: MutableMapping[str, Parser]) -> NoReturn:
    """Answer the shell, and end."""
    commands["run"] = _run_parser(commands["run"], os.environ.get("COMP_LINE", "").split()[2:])
    for command in commands.values():
        for name in ("--backend", "--tab"):
            _complete_by(command.options.get(name), _frameworks)
        for name in ("--to", "--log-dir"):
            _complete_by(command.options.get(name), DirectoriesCompleter())
    _complete_by(commands["bench"].positionals[0], _experiments)
    argcomplete.autocomplete(parser)
    raise SystemExit(1)  # argcomplete has not been asked as its function in the shell asks


def _run_parser(run: Parser, words: list[str]) -> Parser:
    """The parser of ``run``: that of scripts, of chapters, or of both if SCRIPT is not typed yet."""
    chapters = chapter_parser()
    script = run.script_position(words)
    if script >= len(words):
        for name in chapters.options.keys() - run.options.keys():
            run._add_action(chapters.options[name])  # argparse has no public name for it
            run.options[name] = chapters.options[name]
    elif is_chapter(words[script]):
        return chapters
    return run


def _complete_by(action: Any, completer: Any) -> None:
    if action is not None:
        action.completer = completer


def _frameworks(prefix: str, **_: Any) -> list[str]:
    from xdevice.framework.adapters import registered

    previous_names, comma, _last = prefix.rpartition(",")
    names = [name for name in ("all", *registered()) if name not in previous_names.split(",")]
    return [f"{previous_names}{comma}{name}" for name in names]


def _experiments(**_: Any) -> list[str]:
    from xdevice.tools.experiments import EXPERIMENTS

    return list(EXPERIMENTS)
