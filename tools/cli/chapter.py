"""``xdevice chapter``: the cells of a chapter, under each framework that it has a tab for."""

import argparse
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

from xdevice.errors import ArgumentError
from xdevice.escaping import escaped
from xdevice.framework.adapters import available, not_installed
from xdevice.framework.choosing import backend
from xdevice.machine import usable_threads
from xdevice.tools.cli import chapter_report
from xdevice.tools.cli.chapter_report import Report
from xdevice.tools.cli.options import JSON, add_gpus, check_can_be_written
from xdevice.tools.cli.parser import Parser, names, positive, seconds
from xdevice.tools.cli.probe import check_virtual_gpus
from xdevice.tools.cli.program import CHAPTERS, missing
from xdevice.tools.course import record
from xdevice.tools.course.chapters import Chapter, tabs_to_run
from xdevice.tools.course.folders import shared_with
from xdevice.tools.course.missing import missing_packages
from xdevice.tools.course.packages import checkout_folders
from xdevice.tools.course.page import page
from xdevice.tools.course.record import Change
from xdevice.tools.course.rows import open_rows, rows_of
from xdevice.tools.course.running import Part, Plan, TabRun, run_tabs
from xdevice.tools.launcher.children import Child
from xdevice.tools.launcher.progress import Progress
from xdevice.tools.launcher.terminal import write
from xdevice.tools.launcher.texts import counted, write_json
from xdevice.virtual import children
from xdevice.virtual.request import Request, current

# The packages that a chapter needs, by the module that each provides.
_NEEDED = {"nbclient": "nbclient", "ipykernel": "ipykernel", "markdown_it": "markdown-it-py"}
_SEEDS = 3
_MOST_SEEDS = 9


def add_options(parser: Parser) -> None:
    parser.usage = "xdevice chapter [options] CHAPTER"
    parser.epilog = """\
example:
  xdevice chapter --tab torch,jax --html page.html lesson.md
  xdevice chapter --record lesson.ipynb, and later --check: what has changed?

Cells have tabs in the formats of d2l (#@tab), MyST (tab-item), Material for
MkDocs (=== "PyTorch"), and in notebooks (#@tab, or a tag). The cells of a tab
run in a Jupyter kernel and a folder of their own, with the seed 0.

Exit status: 0 if all cells run, 1 if one fails (with --check: if an output has
changed; with --strict: also if tabs differ), 2 for an error in the command."""
    add = parser.add_argument
    add("script", metavar="CHAPTER", help="a chapter in Markdown (.md), or a notebook (.ipynb)")
    tabs = "frameworks; all (the default): those installed"
    add("--tab", type=names, default=None, metavar="all|A,B,…", help=tabs)
    add("--html", type=Path, metavar="FILE", help="write what the tabs show, side by side")
    add("--record", action="store_true", help="keep the outputs beside the chapter")
    add("--check", action="store_true", help="compare with the outputs that were kept")
    add("--outputs", type=Path, metavar="FILE", help="keep them here (CHAPTER.outputs.json)")
    add("--strict", action="store_true", help="exit with 1 also if tabs differ")
    add("--keep-going", action="store_true", help="run the cells after one that fails")
    seeds = "seeds where numbers differ (3; 1 with --check)"
    add("--seeds", type=_seeds, metavar="N", help=seeds)
    add_gpus(parser, "--gpus", "give the cells N virtual GPUs, as emulate does")
    add_gpus(parser, "--virtual-gpus", "give them N virtual GPUs, as run does")
    add("--jobs", type=positive, metavar="N", help="run N tabs at once (half the threads)")
    add("--timeout", type=seconds, metavar="S", help="stop a tab after S seconds")
    add("--json", action="store_true", help=JSON)


def _seeds(text: str) -> int:
    number = positive(text)
    if number > _MOST_SEEDS:
        raise argparse.ArgumentTypeError(f"{text!r} is more than {_MOST_SEEDS} seeds")
    return number


def main(options: argparse.Namespace) -> int:
    path = Path(options.script)
    _check(path, options)
    chapter = _read(path)
    tabs = _tabs(chapter, options.tab)
    outputs = options.outputs or record.path_of(path)
    if options.record:
        check_can_be_written(outputs)
    recorded = record.read(outputs) if options.check else None
    _ask_for_gpus(tabs, options)
    _say_what_is_missing(chapter, tabs)
    _say_what_is_shared(path)
    with Progress(path.name, options.json, _newest_cell()) as progress:
        jobs = options.jobs or max(1, (usable_threads() or 2) // 2)
        plan = Plan(jobs, options.timeout, options.keep_going, progress)
        runs, interrupted = run_tabs(chapter, [Part(tab) for tab in tabs], plan)
        seeds = options.seeds or (1 if options.check else _SEEDS)
        if not interrupted:
            more_runs, interrupted = _with_other_seeds(chapter, runs, seeds, plan)
            runs += more_runs
    changes: list[Change] | None = None
    if recorded is not None:
        changes = record.compared(recorded, _first(runs))
    elif options.record and interrupted:
        words = "was not written, since the chapter was stopped"
        print(f"xdevice: {str(outputs)!r} {words}", file=sys.stderr, flush=True)
    elif options.record:
        record.write(outputs, _first(runs))
    report = Report(chapter, runs, rows_of(chapter, runs), changes)
    if options.html:
        options.html.write_text(page(chapter, runs, report.rows, _virtual_gpus()), encoding="utf-8")
    if options.json:
        write_json(chapter_report.as_json(report))
    else:
        write(*chapter_report.rendered(report, outputs))
    if interrupted:
        return 128 + interrupted
    return _exit_status(report, options)


def _newest_cell() -> Callable[[Child], str]:
    """A function that returns the cell that runs in a child: ``cell 3 of 12``."""
    cells: dict[str, str] = {}

    def newest(child: Child) -> str:
        line = child.newest.decode(errors="replace").strip()
        if line.startswith("cell "):  # and not what the framework prints on stderr
            cells[child.name] = line
        return cells.get(child.name, "")

    return newest


def _exit_status(report: Report, options: argparse.Namespace) -> int:
    if options.check:
        return int(bool(report.changes))
    has_failed = any(not outcome.ran for run in report.runs for outcome in run.outcomes)
    return int(has_failed or (options.strict and not report.agree))


def _with_other_seeds(
    chapter: Chapter, runs: Sequence[TabRun], seeds: int, plan: Plan
) -> tuple[list[TabRun], int | None]:
    """Runs with other seeds, up to the last cell whose numbers differ between frameworks."""
    rows = open_rows(rows_of(chapter, runs))
    if seeds < 2 or not rows:
        return [], None
    tabs = {tab for row in rows for tab in row.cells}
    parts = [
        Part(run.tab, seed, max(row.number for row in rows if run.tab in row.cells))
        for run in runs
        if run.tab in tabs
        for seed in range(1, seeds)
    ]
    return run_tabs(chapter, parts, plan)


def _first(runs: Sequence[TabRun]) -> list[TabRun]:
    return [run for run in runs if run.seed == 0]


def _check(path: Path, options: argparse.Namespace) -> None:
    """Raise the errors that can be found before the work."""
    if path.suffix.lower() not in CHAPTERS:
        reason = "is not a chapter in Markdown (.md) or a notebook (.ipynb)"
        hint = f"; type xdevice run {path} for a script" if path.is_file() else ""
        raise ArgumentError(f"{str(path)!r} {reason}{hint}")
    if not path.exists():
        raise ArgumentError(missing(str(path), "give the path of a chapter"))
    if options.record and options.check:
        raise ArgumentError("--record writes what --check compares with; leave one out")
    if options.gpus and options.virtual_gpus:
        raise ArgumentError("--gpus and --virtual-gpus both make virtual GPUs; leave one out")
    if options.outputs and not (options.record or options.check):
        raise ArgumentError("--outputs is the file of --record and --check; add one of them")
    for file in (options.html, options.outputs):
        if file is not None:
            check_can_be_written(file)
    needed = [package for module, package in _NEEDED.items() if find_spec(module) is None]
    if needed:
        listed = ", ".join(needed)
        raise ArgumentError(f"running a chapter needs {listed}; pip install {' '.join(needed)}")


def _read(path: Path) -> Chapter:
    from xdevice.tools.course.reading import read  # needs nbformat and markdown-it-py

    return read(path)


def _tabs(chapter: Chapter, names: Sequence[str] | None) -> list[str]:
    """The frameworks to run under. No names are ``--tab all``; ``None`` is no such option."""
    installed = available()
    chosen = tabs_to_run(chapter, names or ())
    for name in chosen:
        if name not in installed:
            raise not_installed(name)
    if chosen:
        return chosen
    if not chapter.tabs:
        imported = [name for name in chapter.imported() if name in installed]
        if names is not None and not imported:
            return installed
        return imported[:1] or [str(backend())]
    tabs = [name for name in chapter.tabs if name in installed]
    for name in chapter.tabs:
        if name not in installed:
            print(f"xdevice: the tab {name} is left out: {not_installed(name)}", file=sys.stderr)
    if not tabs:
        raise not_installed(chapter.tabs[0])
    return tabs


def _say_what_is_missing(chapter: Chapter, tabs: Sequence[str]) -> None:
    """Say on stderr which packages are missing, before cells fail one by one for want of them."""
    missing: dict[str, None] = {}
    for tab in tabs:
        cells = chapter.cells_of(tab)
        folders = [chapter.path.resolve().parent, *checkout_folders(chapter.path, cells)]
        missing |= dict.fromkeys(missing_packages(cells, folders))
    if missing:
        names = " ".join(missing)
        words = "the chapter imports packages that are not installed"
        print(f"xdevice: {words}; pip install {names}", file=sys.stderr, flush=True)


def _say_what_is_shared(path: Path) -> None:
    """Say on stderr which files and folders cells can change, as they are too large to copy."""
    shared = shared_with(path)
    if not shared:
        return
    names = ", ".join(str(each.relative_to(path.resolve().parent)) for each in shared[:3])
    others = f" and {len(shared) - 3} more" if len(shared) > 3 else ""
    words = "too large to copy for each tab, so cells that write there change the chapter's own"
    print(f"xdevice: {escaped(names)}{others}: {words}", file=sys.stderr, flush=True)


def _virtual_gpus() -> str:
    """What the page and the tables say of virtual GPUs; nothing if there are none."""
    request = current()
    if not request.number:
        return ""
    model = f" (model {request.model})" if request.model else ""
    return f"on {counted(request.number, 'virtual GPU')}{model}, which the CPU computes"


def _ask_for_gpus(tabs: Sequence[str], options: argparse.Namespace) -> None:
    number = options.gpus or options.virtual_gpus
    if not number:
        return
    stand_in = options.gpus is not None
    source = f"--gpus {number}" if stand_in else f"--virtual-gpus {number}"
    children.propagate(Request(number, stand_in=stand_in, source=source))
    if stand_in:
        children.set_aside_visible_devices()
    check_virtual_gpus(tabs)
