"""What a shell offers after TAB: commands, options, their values, frameworks, experiments, files.

`register-python-argcomplete xdevice` prints the function of the shell, which
starts the command with ``_ARGCOMPLETE``.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, NoReturn

import argcomplete
from argcomplete.completers import DirectoriesCompleter

from xdevice.tools.cli.parser import Parser


def complete(parser: Parser, commands: Mapping[str, Parser]) -> NoReturn:
    """Answer the shell, and end. The parsers of the commands are given without their options."""
    for name, command in commands.items():
        import_module(f"xdevice.tools.cli.{name}").add_options(command)
        for option in ("--backend", "--tab"):
            _complete_by(command.options.get(option), _frameworks)
        for option in ("--to", "--log-dir"):
            _complete_by(command.options.get(option), DirectoriesCompleter())
    _complete_by(commands["bench"].positionals[0], _experiments)
    argcomplete.autocomplete(parser)
    raise SystemExit(1)  # argcomplete has not been asked as its function in the shell asks


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
