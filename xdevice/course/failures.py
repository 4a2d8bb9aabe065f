"""Why a cell fails, as far as its error and the other cells tell."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from xdevice.course.chapters import Cell
from xdevice.course.outcomes import Outcome

NETWORK = re.compile(
    r"ProxyError|Max retries|Connection(?:Error|RefusedError)|URLError|URLSchemeUnknown|offline mode"
    r"|LocalEntryNotFound|couldn't connect to|Cannot download|Error downloading|Failed to (?:download|connect)"
    r"|URL fetch failure|Name or service not known|Temporary failure in name resolution"
)
"""What an error says if a download has failed."""

_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
NO_NAME = re.compile(r"NameError: name '(\w+)' is not defined")
_COMMAND = re.compile(r"^(\s*)[%!].*$", re.MULTILINE)
"""A line of IPython's own: a magic or a command of the shell."""

_DEFINITIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_OWN_NAMES = ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


def assigned(code: str) -> set[str]:
    """The names that a cell assigns, defines or imports, without those in its functions and classes."""
    return set(_assigned(_parsed(code)))


def loaded(code: str) -> set[str]:
    """The names that a cell reads, also in its functions and classes."""
    names = (node for node in ast.walk(_parsed(code)) if isinstance(node, ast.Name))
    return {node.id for node in names if isinstance(node.ctx, ast.Load)}


def _parsed(code: str) -> ast.AST:
    """The cell's syntax; that of an empty one if it is not Python."""
    try:
        return ast.parse(_COMMAND.sub(r"\1pass", code))
    except SyntaxError:
        return ast.Module([], [])


def _assigned(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, _DEFINITIONS):
        yield node.name
    elif not isinstance(node, _OWN_NAMES):
        for child in ast.iter_child_nodes(node):
            yield from _assigned(child)


def with_reasons(cells: Sequence[Cell], outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The outcomes; those of cells that fail with a reason, if it is known."""
    reasoned: list[Outcome] = []
    failed_cells: dict[int, Cell] = {}
    for number, (cell, outcome) in enumerate(zip(cells, outcomes, strict=True), 1):
        if not outcome.failed:
            reasoned.append(outcome)
            continue
        reasoned.append(replace(outcome, reason=_reason(outcome.error, failed_cells)))
        failed_cells[number] = cell
    return reasoned


def _reason(error: str, failed_cells: dict[int, Cell]) -> str:
    if NETWORK.search(error):
        return "it needs the network"
    if module := _NO_MODULE.search(error):
        package = module[1].partition(".")[0]
        return f"no {package!r} is installed or in the chapter's checkout; pip install {package}"
    if name := NO_NAME.search(error):
        for number, cell in failed_cells.items():
            if name[1] in assigned(cell.code):
                return f"cell {number}, which assigns {name[1]!r}, has failed"
    return ""
