"""Run the tabs of a chapter, each in a process and a folder of its own; what comes back is an outcome of each cell.

A tab's folder has copies of the files of the chapter's folder, since tabs run
at the same time, and many write files of the same name, such as
``net.params``. The folder above it has links to what is beside the chapter's.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import Any, Literal, NamedTuple

from xdevice.backends.kit import keras
from xdevice.framework.adapters import registered
from xdevice.tools.course.failures import explanations, imported_by
from xdevice.tools.course.kernel import CELL_FAILED, PREPARED, Job, entries
from xdevice.tools.course.read import Cell, Chapter
from xdevice.tools.course.values import (
    Curve,
    Output,
    Picture,
    curves_of,
    pictures_of,
    text_of,
    without_terminal_codes,
)
from xdevice.tools.launcher.children import Child, Show, run_all

State = Literal["ok", "failed", "dead", "stopped", "not run"]

_FILES = "files"  # the folder, in a tab's temporary one, that looks like the chapter's checkout


class RunOptions(NamedTuple):
    """How the tabs are run."""

    jobs: int
    timeout: float | None
    keep_going: bool
    show: Show


class Trial(NamedTuple):
    """A tab to run: with which seed, and up to which row."""

    tab: str
    seed: int = 0
    last_row: float = float("inf")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a cell."""

    state: State = "not run"
    text: str = ""  # what it printed on stdout, and its value
    log: str = ""  # what it printed on stderr
    error: str = ""  # the type and the message of what it raised
    reason: str = ""  # why it failed, if that is known
    cause: int = 0  # the number of the earlier cell that is why; 0 if there is none
    traceback: str = ""
    seconds: float = 0.0
    pictures: tuple[Picture, ...] = ()
    curves: tuple[Curve, ...] = ()

    @property
    def ran(self) -> bool:
        """Whether it ran, or raised the error that is part of the lesson."""
        return self.state == "ok"

    @property
    def failed(self) -> bool:
        return self.state in ("failed", "dead")


@dataclass(frozen=True, slots=True)
class TabRun:
    """A tab that has run: its cells, what came of each, and its process."""

    tab: str
    seed: int
    cells: tuple[Cell, ...]
    outcomes: tuple[Outcome, ...]
    child: Child
    version: str = ""  # of the framework
    outcome_of_row: Mapping[int, Outcome] = field(init=False)

    def __post_init__(self) -> None:
        pairs = zip(self.cells, self.outcomes, strict=True)
        object.__setattr__(self, "outcome_of_row", {cell.row: outcome for cell, outcome in pairs})


def run(
    chapter: Chapter, trials: Sequence[Trial], layout: Layout, options: RunOptions
) -> tuple[list[TabRun], int | None]:
    """Run the tabs side by side. Also returns the signal that stopped them, if one has."""
    cells = [chapter.cells_of(trial.tab, trial.last_row) for trial in trials]
    with ExitStack() as stack:
        folders = [
            Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="xdevice-")))
            for _ in trials
        ]
        children = [
            _child(trial, cells_of_trial, folder, layout, options)
            for trial, cells_of_trial, folder in zip(trials, cells, folders, strict=True)
        ]
        interrupted = run_all(children, options.jobs, options.timeout, options.show)
        runs = [
            _result(*item, layout) for item in zip(trials, cells, folders, children, strict=True)
        ]
    return runs, interrupted


# ----------------------------------------------------------------- the process


def _child(
    trial: Trial, cells: Sequence[Cell], folder: Path, layout: Layout, options: RunOptions
) -> Child:
    working = layout.make(folder / _FILES)
    code = [(cell.code, list(cell.tags)) for cell in cells]
    Job(code, str(working), trial.tab, trial.seed, options.keep_going).write(folder)
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8"}
    if trial.tab:
        environment["XDEVICE_BACKEND"] = trial.tab
        environment.update(keras.environment(trial.tab))
    path = environment.get("PYTHONPATH", "").split(os.pathsep)
    packages = map(str, package_folders(layout.folder, [cell.code for cell in cells]))
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [*path, *packages]))
    name = trial.tab or "python"
    if trial.seed:
        name = f"{name}, seed {trial.seed}"
    words = [sys.executable, "-m", "xdevice.tools.course.kernel", str(folder)]
    return Child(name, words, environment, {CELL_FAILED: "failed"})


def package_folders(folder: Path, codes: Iterable[str]) -> list[Path]:
    """The chapter's folder and those above it that have a package that the cells import, such as ``d2l``.

    They are searched up to the root of the checkout, five at most. A package of
    the checkout comes before an installed one: the chapter was written for it.
    """
    names = {name for code in codes for name in imported_by(code)}
    names -= set(registered()) | sys.stdlib_module_names
    above = [folder, *folder.parents][:5]
    roots = [number for number, each in enumerate(above, 1) if (each / ".git").exists()]
    return [
        each
        for each in above[: roots[0] if roots else 2]
        if any((each / name / "__init__.py").is_file() for name in names)
    ]


def _result(
    trial: Trial, cells: tuple[Cell, ...], folder: Path, child: Child, layout: Layout
) -> TabRun:
    if child.status == "ok" or child.exit_status == CELL_FAILED:
        layout.keep_new_folders(folder / _FILES)
    written = {entry["cell"]: _outcome(entry) for entry in entries(folder, folder / _FILES)}
    prepared = written.get(PREPARED, Outcome())
    outcomes = [written.get(number, Outcome()) for number in range(len(cells))]
    ended = _why_ended(child)
    if prepared.failed and outcomes:
        outcomes[0] = replace(prepared, text="")
    elif ended:  # the first cell that has not ended is the one that ended the process
        for number, outcome in enumerate(outcomes):
            if outcome.state in ("not run", "stopped"):
                outcomes[number] = replace(outcome, state="dead", error=ended)
                break
    reasons = explanations(
        [cell.code for cell in cells],
        [outcome.error if outcome.failed else "" for outcome in outcomes],
        [outcome.text + outcome.log for outcome in outcomes],
        layout.folder,
    )
    explained = tuple(
        replace(outcome, reason=reason.words, cause=reason.cause)
        for outcome, reason in zip(outcomes, reasons, strict=True)
    )
    return TabRun(trial.tab, trial.seed, cells, explained, child, prepared.text)


def _why_ended(child: Child) -> str:
    """Why the process ended before its last cell; nothing if it ended as it should."""
    _, stderr, _ = child.output()
    lines = stderr.decode(errors="replace").strip().splitlines()
    if child.status == "failed" and child.exit_status != CELL_FAILED:
        return f"the process ended: {lines[-1] if lines else child.exit_status}"
    if child.status in ("timed out", "flooded"):
        return f"the process was stopped: {child.status}"
    return ""


def _outcome(entry: Mapping[str, Any]) -> Outcome:
    outputs: Sequence[Output] = entry["outputs"]
    error, traceback = entry["error"], ""
    for output in outputs:
        if output["output_type"] == "error":
            error = f"{output['ename']}: {output['evalue']}".rstrip(": ")
            traceback = without_terminal_codes("\n".join(output["traceback"]))
    return Outcome(
        state=entry["state"],
        text=text_of(outputs),
        log="".join(
            without_terminal_codes(output["text"])
            for output in outputs
            if output.get("name") == "stderr"
        ),
        error=error,
        traceback=traceback,
        seconds=entry["seconds"],
        pictures=tuple(picture for output in outputs for picture in pictures_of(output)),
        curves=tuple(curve for output in outputs for curve in curves_of(output)),
    )


# ------------------------------------------------------------------ the folder

MOST_BYTES = 64 << 20  # that are copied for a tab, the smallest files first
_MOST_ENTRIES = 2000  # of the chapter's folder, of which further folders are links


@dataclass(frozen=True, slots=True)
class Layout:
    """What a tab's folder has of the chapter's: new folders, copies of files, and links; paths in the folder."""

    folder: Path  # the chapter's
    folders: tuple[Path, ...]
    files: tuple[Path, ...]
    links: tuple[Path, ...]

    def shared(self) -> list[Path]:
        """The content that is too large to be copied for each tab, so that cells can change the chapter's own."""
        return [path for path in self.links if not _is_left(self.folder / path)]

    def make(self, scratch: Path) -> Path:
        """Make the tab's working directory in ``scratch``, and return it."""
        working = scratch / (self.folder.name or "chapter")
        working.mkdir(parents=True)
        for path in self.folders:
            (working / path).mkdir()
        links = [*self.links]
        for path in self.files:
            try:
                shutil.copy2(self.folder / path, working / path)
            except OSError:  # it cannot be read, or is not there any more
                (working / path).unlink(missing_ok=True)
                links.append(path)
        for path in links:
            (working / path).symlink_to(self.folder / path)
        for entry in _entries(self.folder.parent):
            if not os.path.lexists(scratch / entry.name):
                (scratch / entry.name).symlink_to(entry)
        return working

    def keep_new_folders(self, scratch: Path) -> None:
        """Move new folders, such as ``../data``, to where the chapter's folder is.

        They often contain downloads, which the next run needs again.
        """
        above = self.folder.parent
        for entry in scratch.iterdir():
            is_new = entry.is_dir() and not entry.is_symlink()
            if is_new and not os.path.lexists(above / entry.name) and os.access(above, os.W_OK):
                shutil.move(entry, above / entry.name)


def layout_of(chapter: Path) -> Layout:
    """The layout of the chapter's folder, the upper levels first."""
    folder = chapter.resolve().parent
    folders: list[Path] = []
    files: list[tuple[int, Path]] = []
    links: list[Path] = []
    level, seen = [folder], 0
    while level:
        below: list[Path] = []
        for source in [entry for each in level for entry in _entries(each)]:
            seen += 1
            mode, size = _mode_and_size(source)
            path = source.relative_to(folder)
            is_copied = seen <= _MOST_ENTRIES and not _is_left(source)
            if S_ISREG(mode) and is_copied:
                files.append((size, path))
            elif S_ISDIR(mode) and is_copied and not source.is_symlink():
                folders.append(path)
                below.append(source)
            else:
                links.append(path)
        level = below
    copied: list[Path] = []
    total = 0
    for size, path in sorted(files):
        total += size
        (copied if total <= MOST_BYTES else links).append(path)
    return Layout(folder, tuple(folders), tuple(copied), tuple(links))


def _is_left(source: Path) -> bool:
    """Whether the entry is no content of the chapter's: hidden, a cache, an environment, or a tab's folder."""
    is_environment = (source / "pyvenv.cfg").is_file() or (source / "conda-meta").is_dir()
    temporary = Path(tempfile.gettempdir()).resolve()
    is_temporary = source == temporary or (
        source.parent == temporary and source.name.startswith("xdevice-")
    )
    return is_environment or is_temporary or source.name.startswith((".", "__pycache__"))


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:  # it may be entered, and not listed
        return []


def _mode_and_size(path: Path) -> tuple[int, int]:
    """The mode of what the path leads to, and its bytes; zeros if it leads nowhere."""
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_mode, status.st_size
