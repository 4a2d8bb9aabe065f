"""The tabs of a chapter, each in a process of its own."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from xdevice.backends.kit import keras
from xdevice.tools.course import outcomes
from xdevice.tools.course.chapters import Cell, Chapter
from xdevice.tools.course.failures import with_reasons
from xdevice.tools.course.folders import keep_new_folders, lay_out
from xdevice.tools.course.jobs import PREPARED, Job
from xdevice.tools.course.outcomes import Outcome
from xdevice.tools.course.packages import checkout_folders
from xdevice.tools.launcher.children import Child, Show, run_all

_FILES = "files"  # the folder, in a tab's temporary one, that looks like the chapter's checkout


class Plan(NamedTuple):
    """How the tabs are run."""

    jobs: int
    timeout: float | None
    keep_going: bool
    show: Show


class TabRun(NamedTuple):
    """A tab that has run: its cells, what came of each, and its process."""

    tab: str
    seed: int
    cells: list[Cell]
    outcomes: list[Outcome]
    child: Child
    version: str = ""  # of the framework

    @property
    def outcome_of_row(self) -> dict[int, Outcome]:
        pairs = zip(self.cells, self.outcomes, strict=True)
        return {cell.row: outcome for cell, outcome in pairs}


class Part(NamedTuple):
    """A tab to run: with which seed, and up to which row."""

    tab: str
    seed: int = 0
    last_row: int | None = None


def run_tabs(
    chapter: Chapter, parts: Sequence[Part], plan: Plan
) -> tuple[list[TabRun], int | None]:
    """Run the tabs side by side. Also returns the signal that stopped them, if one has."""
    with ExitStack() as stack:
        folders = [
            Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="xdevice-"))) for _ in parts
        ]
        children = [
            _child(chapter, part, folder, plan) for part, folder in zip(parts, folders, strict=True)
        ]
        interrupted = run_all(children, plan.jobs, plan.timeout, plan.show)
        runs = [_result(chapter, *item) for item in zip(parts, folders, children, strict=True)]
    return runs, interrupted


def _cells(chapter: Chapter, part: Part) -> list[Cell]:
    cells = chapter.cells_of(part.tab)
    if part.last_row is None:
        return cells
    return [cell for cell in cells if cell.row <= part.last_row]


def _child(chapter: Chapter, part: Part, folder: Path, plan: Plan) -> Child:
    cells = _cells(chapter, part)
    working = lay_out(chapter.path, folder / _FILES)
    code = [(cell.code, list(cell.tags)) for cell in cells]
    Job(code, str(working), part.seed, plan.keep_going).write(folder)
    name = part.tab or "python"
    if part.seed:
        name = f"{name}, seed {part.seed}"
    words = [sys.executable, "-m", "xdevice.tools.course.runner", str(folder)]
    return Child(name, words, _environment(chapter, part.tab, cells))


def _environment(chapter: Chapter, tab: str, cells: Sequence[Cell]) -> Mapping[str, str]:
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8"}
    if tab:
        environment["XDEVICE_BACKEND"] = tab
        environment.update(keras.environment(tab))
    folders = [str(folder) for folder in checkout_folders(chapter.path, cells)]
    path = environment.get("PYTHONPATH", "").split(os.pathsep)
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [*path, *folders]))
    return environment


def _result(chapter: Chapter, part: Part, folder: Path, child: Child) -> TabRun:
    cells = _cells(chapter, part)
    if child.status == "ok":
        keep_new_folders(chapter.path, folder / _FILES)
    written = outcomes.read(folder, folder / _FILES)
    ended = outcomes.in_order(written, len(cells), _why_ended(child))
    version = written.get(PREPARED, Outcome()).text
    return TabRun(
        part.tab,
        part.seed,
        cells,
        with_reasons(cells, ended, chapter.path.resolve().parent),
        child,
        version,
    )


def _why_ended(child: Child) -> str:
    """Why the process ended before its last cell; nothing if it ended as it should."""
    _, stderr, _ = child.output()
    lines = stderr.decode(errors="replace").strip().splitlines()
    if child.status == "failed":
        return f"the process ended: {lines[-1] if lines else child.exit_status}"
    if child.status in ("timed out", "flooded"):
        return f"the process was stopped: {child.status}"
    return ""
