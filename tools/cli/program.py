"""The program of the command line: a Python file, a module, code, a folder, or any command."""

import ast
import os
import shutil
import sys
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from xdevice.errors import ArgumentError, did_you_mean
from xdevice.framework.adapters import registered

CHAPTERS = (".md", ".markdown", ".ipynb")  # the suffixes of what `xdevice chapter` runs

_SHELL = (".sh", ".bash", ".zsh", ".fish")
_MACHINE_CODE = (b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe", b"MZ")
_LAUNCHERS = (
    "torchrun",
    "accelerate",
    "deepspeed",
    "horovodrun",
    "composer",
    "xdevice",
    "torch.distributed.run",
    "torch.distributed.launch",
)
"""Python commands and modules that start the program in processes of their own."""


class Program(NamedTuple):
    words: list[str]  # the arguments of Python, or the command itself
    title: str  # its name in messages
    file: Path | None = None  # the file whose imports tell which frameworks it uses
    is_command: bool = False  # not a Python program, though it may start some

    def run_by(self, python: str) -> list[str]:
        return self.words if self.is_command else [python, *self.words]

    def search_path(self, python: str) -> dict[str, str]:
        """The PATH with which a command starts the same Python; nothing for a Python program."""
        if not self.is_command:
            return {}
        return {"PATH": search_path(python)}

    @property
    def only_starts_others(self) -> bool:
        return self.is_command or Path(self.title).name in _LAUNCHERS


def program_of(name: str, how: str = "") -> Program:
    """The program for a file, a folder with ``__main__.py``, a command, a module or code."""
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
    if path.name == name:  # without a folder
        command = shutil.which(name, path=search_path(sys.executable))
        if command is not None:
            return Program([command], name, is_command=not _is_python(Path(command)))
    raise ArgumentError(_nothing_to_run(name))


def missing(name: str, otherwise: str) -> str:
    """The error about a file that does not exist: the name of a file that is meant, or advice."""
    path = Path(name)
    folder = path.parent
    files: list[str] = []
    if folder.is_dir():
        files = sorted(file.name for file in folder.iterdir() if file.is_file())
    hint = did_you_mean(path.name, files, "", least=0.7)
    if not hint:
        hint = otherwise
    elif folder != Path():
        hint += f" (in {str(folder)!r})"
    return f"{name!r} does not exist; {hint}"


def search_path(python: str) -> str:
    """PATH with the folder of that Python first, as in an environment that is activated."""
    return os.pathsep.join([os.path.dirname(python), os.environ.get("PATH", os.defpath)])


def imported_by(file: Path) -> list[str]:
    """The frameworks that the file imports unconditionally: in top-level statements."""
    try:
        body = ast.parse(file.read_bytes()).body
    except (SyntaxError, ValueError):  # the error appears when it runs
        return []
    modules: list[str] = []
    for statement in body:
        if isinstance(statement, ast.Import):
            modules += [alias.name for alias in statement.names]
        elif isinstance(statement, ast.ImportFrom):
            modules.append(statement.module or "")
    packages = {module.partition(".")[0] for module in modules}
    return [name for name in registered() if name in packages]


def _check_module(name: str) -> None:
    package = name.partition(".")[0]
    # python -m looks in the present folder, too, and asks the hooks of
    # editable installs
    if PathFinder.find_spec(package, [os.getcwd(), *sys.path]) or find_spec(package):
        return
    raise ArgumentError(f"no module {package!r} here; without -m a script is given by its path")


def _of_file(name: str) -> Program:
    path = Path(name)
    if path.suffix.lower() in CHAPTERS:
        raise ArgumentError(f"{name!r} is a chapter, not a script; type xdevice chapter {name}")
    with path.open("rb") as file:
        first_bytes = file.read(512)
    is_shell_script = path.suffix in _SHELL
    has_interpreter = first_bytes.startswith(b"#!") and not _is_python(path)
    if not is_shell_script and not has_interpreter and not first_bytes.startswith(_MACHINE_CODE):
        return Program([name], name, path)
    if not os.access(path, os.X_OK):
        shell = "bash"
        if path.suffix in (".zsh", ".fish"):
            shell = path.suffix[1:]
        raise ArgumentError(
            f"{name!r} is not executable; write {shell} {name} in its place, or chmod +x {name}"
        )
    if is_shell_script and not has_interpreter:
        raise ArgumentError(
            f"{name!r} does not begin with #!/bin/bash or the like; write bash {name} in its place"
        )
    command = name
    if not os.path.dirname(name):
        command = os.path.join(os.curdir, name)
    return Program([command], name, is_command=True)


def _is_python(path: Path) -> bool:
    """Whether the file names Python in its first line, as the commands that pip installs do.

    If that line would be too long for the kernel, pip writes Python's path into the second one:
    '''exec' /long/path/python "$0" "$@"
    """
    with path.open("rb") as file:
        first, second = file.readline(512), file.readline(512)
    return first[:2] == b"#!" and (b"python" in first or second.startswith(b"'''exec'"))


def _nothing_to_run(name: str) -> str:
    path = Path(name)
    if path.is_dir():
        runnable = "a folder with a __main__.py"
        scripts = sorted(file.name for file in path.glob("*.py"))
        if scripts:
            runnable = f"{', '.join(scripts[:3])} in it"
        return f"{name!r} is a folder, not a script, without a __main__.py; {runnable} can be run"
    here = f"as seen from {str(Path.cwd())!r}"
    return missing(name, f"give the path of a Python file, {here}, or a command")
