"""Each example imports this first: if a module that it imports is not installed, it says so in one line, and ends."""

import ast
import sys
from importlib.util import find_spec
from pathlib import Path

PACKAGES = {"sklearn": "scikit-learn", "xdevice": "xdevice-tensors"}
"""Packages that are not called as their modules."""


def missing(script):
    """The packages of the modules that the script imports at its top and that cannot be found."""
    names = []
    for statement in ast.parse(script.read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.Import):
            names += [alias.name for alias in statement.names]
        elif isinstance(statement, ast.ImportFrom):
            names.append(statement.module)
    roots = dict.fromkeys(name.partition(".")[0] for name in names)
    return [PACKAGES.get(root, root) for root in roots if find_spec(root) is None]


def check(script):
    """Exit with what to type, if something is missing."""
    lacking = missing(script)
    if lacking:
        raise SystemExit(
            f"{script.name} needs {', '.join(lacking)}; in the project's folder, pip install '.[examples]' has all "
            "that the examples need but the framework"
        )


if Path(sys.argv[0]).parent.resolve() == Path(__file__).parent.resolve():  # an example is being run
    check(Path(sys.argv[0]))
