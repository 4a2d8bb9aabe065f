"""``xdevice chapter``: the cells of a chapter, under each framework that it has a tab for."""

import argparse
import sys
from collections.abc import Callable, Collection, Sequence
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path

from xdevice.contract import Request
from xdevice.errors import ArgumentError
from xdevice.escaping import escaped
from xdevice.framework.adapters import registered
from xdevice.framework.choosing import backend
from xdevice.framework.installing import framework_named
from xdevice.framework.registry import available, not_installed
from xdevice.machine import usable_threads
from xdevice.tools.cli import chapter_report
from xdevice.tools.cli.chapter_report import Report
from xdevice.tools.cli.options import JSON, add_gpus, check_can_be_written
from xdevice.tools.cli.parser import Parser, names, one_of, positive, seconds
from xdevice.tools.cli.probe import check_virtual_gpus
from xdevice.tools.cli.program import CHAPTERS, missing
from xdevice.tools.course.compare import rows_of, rows_to_repeat
from xdevice.tools.course.failures import missing_packages
from xdevice.tools.course.read import SKIPPED, Chapter, read
from xdevice.tools.course.record import (
    Change,
    changes_since,
    read_record,
    record_path,
    write_record,
)
from xdevice.tools.course.run import (
    Layout,
    RunOptions,
    TabRun,
    Trial,
    layout_of,
    package_folders,
    run,
)
from xdevice.tools.launcher.children import Child
from xdevice.tools.launcher.progress import Progress
from xdevice.tools.launcher.terminal import write
from xdevice.tools.launcher.texts import counted, write_json
from xdevice.virtual import children
from xdevice.virtual.models import MODELS
from xdevice.virtual.request import of_environment

# The packages that a chapter needs, by the module that each provides.
_NEEDED = {"nbclient": "nbclient", "ipykernel": "ipykernel", "markdown_it": "markdown-it-py"}
_NEEDED_BY_HTML = {
    "mdit_py_plugins": "mdit-py-plugins",
    "pygments": "pygments",
    "latex2mathml": "latex2mathml",
}
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
    add("--html", type=Path, metavar="FILE", help="write the page that readers see")
    add("--review", action="store_true", help="add to it what is said of each cell")
    add("--record", action="store_true", help="keep the outputs beside the chapter")
    add("--check", action="store_true", help="compare with the outputs that were kept")
    add("--outputs", type=Path, metavar="FILE", help="keep them here (CHAPTER.outputs.json)")
    add("--strict", action="store_true", help="exit with 1 also if tabs differ")
    add("--keep-going", action="store_true", help="run the cells after one that fails")
    seeds = "seeds where numbers differ (3; 1 with --check)"
    add("--seeds", type=_seeds, metavar="N", help=seeds)
    add_gpus(parser, "--gpus", "give the cells N virtual GPUs, as emulate does")
    add_gpus(parser, "--virtual-gpus", "give them N virtual GPUs, as run does")
    add("--model", **one_of(MODELS), metavar="NAME", help="what the GPUs of --gpus are, such as t4")
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
    chapter = read(path)
    tabs = _tabs(chapter, options.tab)
    outputs = options.outputs or record_path(path)
    if options.record:
        check_can_be_written(outputs)
    recorded = read_record(outputs) if options.check else None
    _ask_for_gpus(tabs, options)
    layout = layout_of(path)
    _say_what_is_missing(chapter, tabs, layout)
    _say_what_is_shared(layout)
    runs, interrupted = _run(chapter, tabs, layout, options)
    first_runs = [tab_run for tab_run in runs if tab_run.seed == 0]
    changes: list[Change] | None = None
    if recorded is not None:
        changes = changes_since(recorded, first_runs)
    elif options.record and interrupted:
        words = "was not written, since the chapter was stopped"
        print(f"xdevice: {str(outputs)!r} {words}", file=sys.stderr, flush=True)
    elif options.record:
        write_record(outputs, first_runs)
        _say_what_is_written(outputs)
    report = Report(chapter, runs, rows_of(runs), changes)
    if options.html:
        from xdevice.tools.course.page import page  # with what it needs

        html = page(chapter, runs, report.rows, _virtual_gpus(), options.review)
        options.html.write_text(html, encoding="utf-8")
        _say_what_is_written(options.html)
    if options.json:
        write_json(chapter_report.as_json(report))
    else:
        write(*chapter_report.rendered(report, outputs))
    if interrupted:
        return 128 + interrupted
    return _exit_status(report, options)


def _run(
    chapter: Chapter, tabs: Sequence[str], layout: Layout, options: argparse.Namespace
) -> tuple[list[TabRun], int | None]:
    """All runs: each tab with the seed 0, and with others as far as numbers differ.

    And the signal that stopped the command, if one has.
    """
    with Progress(chapter.path.name, options.json, _newest_cell()) as progress:
        jobs = options.jobs or max(1, (usable_threads() or 2) // 2)
        run_options = RunOptions(jobs, options.timeout, options.keep_going, progress)
        runs, interrupted = run(chapter, [Trial(tab) for tab in tabs], layout, run_options)
        if interrupted:
            return runs, interrupted
        # each tab up to its last row whose numbers differ
        last_rows = {tab: row.number for row in rows_to_repeat(rows_of(runs)) for tab in row.cells}
        seeds = range(1, options.seeds or (1 if options.check else _SEEDS))
        trials = [Trial(tab, seed, row) for tab, row in last_rows.items() for seed in seeds]
        more_runs, interrupted = run(chapter, trials, layout, run_options)
        return runs + more_runs, interrupted


def _say_what_is_written(path: Path) -> None:
    print(f"xdevice: wrote {str(path)!r}", file=sys.stderr, flush=True)


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
    if options.model and not options.gpus:
        raise ArgumentError(
            f"--model says what the GPUs of --gpus are; write --gpus 2 --model {options.model}"
        )
    if options.outputs and not (options.record or options.check):
        raise ArgumentError("--outputs is the file of --record and --check; add one of them")
    for file in (options.html, options.outputs):
        if file is not None:
            check_can_be_written(file)
    if options.review and not options.html:
        raise ArgumentError("--review adds to the page of --html; write --html FILE --review")
    modules = _NEEDED | _NEEDED_BY_HTML if options.html else _NEEDED
    needed = [package for module, package in modules.items() if find_spec(module) is None]
    if needed:
        listed = ", ".join(needed)
        raise ArgumentError(f"running a chapter needs {listed}; pip install {' '.join(needed)}")


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


def tabs_to_run(chapter: Chapter, names: Collection[str]) -> list[str]:
    """The frameworks that ``--tab`` names; a name that the chapter does not have is an error."""
    tabs: list[str] = []
    for name in names:
        framework = framework_named(name)
        if framework not in registered():
            options = chapter.tabs or tuple(registered())
            like = get_close_matches(name, [*options, "pytorch", "paddlepaddle"], 1)
            hint = f"did you mean {like[0]!r}?" if like else f"there are {', '.join(options)}"
            raise ArgumentError(f"{name!r} is not a tab or a framework; {hint}")
        if chapter.tabs and framework not in chapter.tabs:
            listed = ", ".join(chapter.tabs)
            raise ArgumentError(f"{str(chapter.path)!r} has no tab {name!r}; it has {listed}")
        tabs.append(framework)
    return list(dict.fromkeys(tabs))


def _say_what_is_missing(chapter: Chapter, tabs: Sequence[str], layout: Layout) -> None:
    """Say on stderr which packages are missing, before cells fail one by one for want of them."""
    missing: dict[str, None] = {}
    for tab in tabs:
        codes = [cell.code for cell in chapter.cells_of(tab) if SKIPPED not in cell.tags]
        folders = [layout.folder, *package_folders(layout.folder, codes)]
        missing |= dict.fromkeys(missing_packages(codes, folders))
    if missing:
        names = " ".join(missing)
        words = "the chapter imports packages that are not installed"
        print(f"xdevice: {words}; pip install {names}", file=sys.stderr, flush=True)


def _say_what_is_shared(layout: Layout) -> None:
    """Say on stderr which files and folders cells can change, as they are too large to copy."""
    shared = layout.shared()
    if not shared:
        return
    names = ", ".join(map(str, shared[:3]))
    others = f" and {len(shared) - 3} more" if len(shared) > 3 else ""
    words = "too large to copy for each tab, so cells that write there change the chapter's own"
    print(f"xdevice: {escaped(names)}{others}: {words}", file=sys.stderr, flush=True)


def _virtual_gpus() -> str:
    """What the page and the tables say of virtual GPUs; nothing if there are none."""
    request = of_environment()
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
    model = options.model or ""
    children.give_to_program(Request(number, stand_in=stand_in, model=model, source=source))
    check_virtual_gpus(tabs)
