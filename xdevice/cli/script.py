"""The script or module that a command is given."""

import os
import re
import shutil
import sys
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path

from xdevice.errors import ArgumentError


def script_at(path: str) -> str:
    """The path, if there is a file; of a command's name, such as ``torchrun``, that of its Python file on PATH."""
    if Path(path).is_file():
        return path
    command = shutil.which(path) if Path(path).name == path else None
    if command is not None and _is_python(command):
        return command
    what = "is a folder, not a script" if Path(path).is_dir() else "does not exist"
    raise ArgumentError(f"{path!r} {what}; give the path of a Python file, as seen from {str(Path.cwd())!r}")


def program(name: str, module: bool) -> list[str]:
    """What Python is given to run a script, or a module (``-m``), if there is one of that name."""
    if not module:
        return [script_at(name)]
    package = name.partition(".")[0]
    # python -m looks in the present folder, too, and asks the hooks of editable installs
    if PathFinder.find_spec(package, [os.getcwd(), *sys.path]) is None and find_spec(package) is None:
        raise ArgumentError(f"no module {package!r} here; without -m a script is given by its path")
    return ["-m", name]


def without_python(arguments: list[str]) -> tuple[list[str], bool]:
    """The arguments of ``run`` with SCRIPT for ``python SCRIPT`` or ``-m SCRIPT``, and whether -m was there."""
    at = script_position(arguments)
    options, words = arguments[:at], arguments[at:]
    if words and _INTERPRETER.fullmatch(os.path.basename(words[0])):
        _check_interpreter(words)
        del words[0]
    module = words[:1] == ["-m"]
    return [*options, *words[module:]], module


_INTERPRETER = re.compile(r"python[\d.]*(\.exe)?", re.IGNORECASE)


def _check_interpreter(words: list[str]) -> None:
    """Raise unless the words are this environment's Python and what it is to run."""
    python, *rest = words
    folder = os.path.dirname(python)
    if folder and os.path.abspath(folder) != os.path.dirname(sys.executable):
        raise ArgumentError(
            f"{python!r} is not the Python that xdevice runs scripts with, {sys.executable!r}; leave it out, or type "
            f"{python} -m xdevice run SCRIPT"
        )
    if not rest or (rest[0].startswith("-") and rest[0] != "-m"):
        raise ArgumentError(
            f"{' '.join(words[:2])!r} names no script; type xdevice run SCRIPT or xdevice run -m MODULE"
        )


def _is_python(path: str) -> bool:
    """Whether the command is a Python file, as those are that pip installs."""
    with open(path, "rb") as file:
        return file.read(2) == b"#!" and b"python" in file.read(512)


_WITHOUT_VALUE = (
    *("--stand-in", "--lenient", "--races", "--watch-transfers"),
    *("--json", "--normalize", "--strict", "-h", "--help"),
)


def script_position(arguments: list[str]) -> int:
    """Where SCRIPT is in the arguments of ``run`` if options come before it; their number if it is not there.

    A module begins with its -m.
    """
    at = 1
    while at < len(arguments) and arguments[at].startswith("-"):
        if arguments[at] == "--":
            return at + 1
        if arguments[at] == "-m":
            return at
        at += 1 if arguments[at] in _WITHOUT_VALUE or "=" in arguments[at] else 2
    return min(at, len(arguments))
