"""What a command line names as its SCRIPT: a Python file, a module, code, a folder, or any command."""

import ast
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path

from xdevice.errors import ArgumentError, did_you_mean
from xdevice.framework.adapters import registered

_SHELL = (".sh", ".bash", ".zsh", ".fish")
_MACHINE_CODE = (b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe", b"MZ")
_LAUNCHERS = (
    *("torchrun", "accelerate", "deepspeed", "horovodrun", "composer", "xdevice"),
    *("torch.distributed.run", "torch.distributed.launch"),
)
"""Python commands and modules that start the program in processes of their own."""


@dataclass(frozen=True)
class Program:
    words: list[str]  # what Python is given, or the command
    shown: str  # in titles
    file: Path | None = None  # whose imports say which frameworks it uses
    is_command: bool = False  # no Python program itself, though it may start some

    def run_by(self, python: str, flags: Sequence[str] = ()) -> list[str]:
        return self.words if self.is_command else [python, *flags, *self.words]

    @property
    def only_starts_others(self) -> bool:
        return self.is_command or Path(self.shown).name in _LAUNCHERS


def program_of(name: str, how: str = "") -> Program:
    """What is run for a file, a folder with ``__main__.py``, a command on PATH, a module (-m) or code (-c)."""
    if how == "-c":
        return Program(["-c", name], "-c")
    if how == "-m":
        _check_module(name)
        return Program(["-m", name], name)
    path = Path(name)
    if path.is_file():
        return _of_file(name)
    if (path / "__main__.py").is_file():
        return Program([name], name, path / "__main__.py")
    command = shutil.which(name, path=search_path(sys.executable)) if path.name == name else None
    if command is not None:
        return Program([command], name, is_command=not _is_python(Path(command)))
    raise ArgumentError(_nothing_to_run(name))


def search_path(python: str) -> str:
    """PATH with the folder of that Python first, as in an environment that is activated."""
    return os.pathsep.join([os.path.dirname(python), os.environ.get("PATH", os.defpath)])


def imported_by(file: Path) -> list[str]:
    """The frameworks that the file imports unconditionally: in top-level statements."""
    try:
        body = ast.parse(file.read_bytes()).body
    except (SyntaxError, ValueError):  # the error appears when it runs
        return []
    names = [
        alias.name
        for statement in body
        if isinstance(statement, ast.Import)
        for alias in statement.names
    ]
    names += [statement.module or "" for statement in body if isinstance(statement, ast.ImportFrom)]
    found = {name.partition(".")[0] for name in names}
    return [name for name in registered() if name in found]


def _check_module(name: str) -> None:
    package = name.partition(".")[0]
    # python -m looks in the present folder, too, and asks the hooks of editable installs
    if (
        PathFinder.find_spec(package, [os.getcwd(), *sys.path]) is None
        and find_spec(package) is None
    ):
        raise ArgumentError(f"no module {package!r} here; without -m a script is given by its path")


def _of_file(name: str) -> Program:
    path = Path(name)
    if path.suffix == ".ipynb":
        raise ArgumentError(
            f"{name!r} is a notebook; type jupyter nbconvert --to script {name}, and run its .py file"
        )
    with path.open("rb") as file:
        begins = file.read(512)
    has_interpreter = begins[:2] == b"#!" and not _is_python(path)
    if path.suffix not in _SHELL and not has_interpreter and not begins.startswith(_MACHINE_CODE):
        return Program([name], name, path)
    if not os.access(path, os.X_OK):
        shell = path.suffix[1:] if path.suffix in _SHELL else "bash"
        shell = "bash" if shell == "sh" else shell
        raise ArgumentError(
            f"{name!r} is not executable; type xdevice run {shell} {name}, or chmod +x {name}"
        )
    if path.suffix in _SHELL and not has_interpreter:
        raise ArgumentError(
            f"{name!r} does not begin with #!/bin/bash or the like; type xdevice run bash {name}"
        )
    return Program(
        [name if os.path.dirname(name) else os.path.join(os.curdir, name)], name, is_command=True
    )


def _is_python(path: Path) -> bool:
    """Whether the file names Python in its first line, as the commands do that pip installs, or in the second.

    pip writes a second line where the first would be too long for the kernel: '''exec' /long/path/python "$0" "$@"
    """
    with path.open("rb") as file:
        first, second = file.readline(512), file.readline(512)
    return first[:2] == b"#!" and (b"python" in first or second.startswith(b"'''exec'"))


def _nothing_to_run(name: str) -> str:
    path = Path(name)
    if path.is_dir():
        here = ", ".join(sorted(file.name for file in path.glob("*.py"))[:3])
        there = f"{here} in it can" if here else "a folder with a __main__.py can"
        return f"{name!r} is a folder, not a script, without a __main__.py; {there} be run"
    folder = path.parent
    near = (
        sorted(file.name for file in folder.iterdir() if file.is_file()) if folder.is_dir() else []
    )
    otherwise = f"give the path of a Python file, as seen from {str(Path.cwd())!r}, or a command"
    hint = did_you_mean(path.name, near, "", least=0.7)
    if hint and folder != Path():
        hint += f" (in {str(folder)!r})"
    return f"{name!r} does not exist; {hint or otherwise}"
