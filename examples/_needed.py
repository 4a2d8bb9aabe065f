"""Each example imports this module first.

If a module that the example imports is not installed, the example prints one line and ends.
"""

import ast
import sys
from importlib.util import find_spec
from pathlib import Path

PACKAGES = {"sklearn": "scikit-learn", "xdevice": "xdevice-tensors"}
"""Packages whose name differs from that of their module."""


def missing(script):
    """The packages of the modules that the script imports and that are not installed."""
    names = []
    for statement in ast.parse(script.read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.Import):
            names += [alias.name for alias in statement.names]
        elif isinstance(statement, ast.ImportFrom):
            names.append(statement.module)
    roots = dict.fromkeys(name.partition(".")[0] for name in names)
    return [PACKAGES.get(root, root) for root in roots if find_spec(root) is None]


def check(script):
    """If a package is missing, exit with the command that installs it."""
    lacking = missing(script)
    if lacking:
        raise SystemExit(
            f"{script.name} needs {', '.join(lacking)}; in the project's folder, pip install '.[examples]' has all "
            "that the examples need but the framework"
        )


if Path(sys.argv[0]).parent.resolve() == Path(__file__).parent.resolve():  # an example is being run
    check(Path(sys.argv[0]))
