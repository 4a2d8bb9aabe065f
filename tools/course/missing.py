"""The packages that a chapter imports and that are not installed, before it runs.

The modules of the chapter's own checkout that its cells import are read, too,
since they import packages themselves.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from xdevice.tools.course.chapters import Cell, parsed
from xdevice.tools.course.failures import package_of

_INSTALLS = re.compile(r"^\s*[%!].*\b(?:pip|conda|mamba|uv)\b.*\binstall\b", re.MULTILINE)


def missing_packages(cells: Sequence[Cell], folders: Iterable[Path]) -> list[str]:
    """What to install so that the cells can import what they do; ``folders`` have own packages.

    Imports inside ``try`` and functions do not count. A chapter that installs
    packages itself is taken to install what it needs.
    """
    if any(_INSTALLS.search(cell.code) for cell in cells):
        return []
    run = [cell for cell in cells if "skip-execution" not in cell.tags]
    modules = [module for cell in run for module in _imported(parsed(cell.code))]
    own = [path for module in modules for path in _files_of(module, folders)]
    for path in dict.fromkeys(own):
        modules += _imported(_parsed_file(path))
    names = {
        module.partition(".")[0] for module in modules if not module.startswith("google.colab")
    }
    return sorted(package_of(name) for name in names if not _is_found(name, folders))


def _imported(code: ast.AST) -> Iterator[str]:
    """The modules that the code imports whenever it runs; ``from a import b`` is ``a.b``."""
    for node in getattr(code, "body", ()):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _files_of(module: str, folders: Iterable[Path]) -> Iterator[Path]:
    """The files of the checkout that an import of the module runs."""
    names = module.split(".")
    for folder in folders:
        for length in range(1, len(names) + 1):
            place = folder.joinpath(*names[:length])
            candidates = (place / "__init__.py", place.with_suffix(".py"))
            yield from (path for path in candidates if path.is_file())


def _parsed_file(path: Path) -> ast.AST:
    try:
        return parsed(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return ast.Module([], [])


def _is_found(name: str, folders: Iterable[Path]) -> bool:
    if name in sys.stdlib_module_names or name in sys.modules:
        return True
    if any((folder / name).is_dir() or (folder / f"{name}.py").is_file() for folder in folders):
        return True
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):
        return False
