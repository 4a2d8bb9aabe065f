"""Whether the frameworks can limit the memory of virtual GPUs, or look for races: asked before a script runs."""

import ast
import subprocess
from collections.abc import Iterable
from pathlib import Path

from xdevice.cli.answering import PYTHON
from xdevice.errors import NotSupportedError
from xdevice.framework.adapters import is_installed, registered
from xdevice.kit import virtual_memory, virtual_request

_REFUSED = 3
_ASK = f"""
import sys, xdevice
xdevice.use(sys.argv[1])
try:
    xdevice.count()
except xdevice.NotSupportedError as error:
    print(error)
    sys.exit({_REFUSED})
"""


def check(names: Iterable[str]) -> None:
    """Raise an error if a limit, or races, are asked for, and one of the frameworks cannot have such virtual GPUs.

    Each is asked in a process of its own: its import may change the environment, which the script inherits.
    """
    if virtual_memory.limit() is None and not virtual_request.current().races:
        return
    for name in filter(is_installed, names):
        command = [*PYTHON, "-c", _ASK, name]
        asked = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", check=False)
        if asked.returncode == _REFUSED:
            raise NotSupportedError(asked.stdout.strip().rpartition("\n")[2])


def imported_by(script: str) -> list[str]:
    """The frameworks that the script imports unconditionally: in top-level statements of the file."""
    try:
        body = ast.parse(Path(script).read_bytes()).body
    except (SyntaxError, ValueError):  # the error appears when it runs
        return []
    names = [alias.name for statement in body if isinstance(statement, ast.Import) for alias in statement.names]
    names += [statement.module or "" for statement in body if isinstance(statement, ast.ImportFrom)]
    found = {name.partition(".")[0] for name in names}
    return [name for name in registered() if name in found]
