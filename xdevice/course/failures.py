"""Why a cell fails, as far as its error and the other cells tell."""

from __future__ import annotations

import re
from collections.abc import Sequence
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
_NO_NAME = re.compile(r"NameError: name '(\w+)' is not defined")
_ASSIGNS = re.compile(
    r"^(?:def|class) (\w+)|^([A-Za-z_][\w, ]*?) *=(?!=)|^(?:from \S+ )?import (.*)", re.MULTILINE
)


def assigned(code: str) -> set[str]:
    """The names that the lines at the top of a cell assign, define or import."""
    return {
        name for groups in _ASSIGNS.findall(code) for name in re.findall(r"\w+", " ".join(groups))
    }


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
    if name := _NO_NAME.search(error):
        for number, cell in failed_cells.items():
            if name[1] in assigned(cell.code):
                return f"cell {number}, which assigns {name[1]!r}, has failed"
    return ""
