"""``xdevice run CHAPTER``: the cells of a chapter, under each framework that it has a tab for."""

import argparse
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from xdevice.cli import course_report
from xdevice.course.chapters import Chapter, tabs_to_run
from xdevice.course.reading import read
from xdevice.course.running import Part, Plan, TabRun, run_tabs
from xdevice.errors import ArgumentError
from xdevice.framework.adapters import available, not_installed
from xdevice.framework.choosing import backend
from xdevice.hardware.virtual import provider
from xdevice.launcher.progress import Progress
from xdevice.launcher.terminal import write
from xdevice.launcher.texts import write_json
from xdevice.machine import usable_threads

# The packages that a chapter needs, by the module that each provides.
_NEEDED = {"nbclient": "nbclient", "ipykernel": "ipykernel", "markdown_it": "markdown-it-py"}


def main(options: argparse.Namespace) -> int:
    _check_packages()
    path = Path(options.script)
    chapter = read(path)
    tabs = _tabs(chapter, options.tab)
    _ask_for_gpus(tabs, options)
    with Progress(path.name, quiet=options.json) as progress:
        jobs = options.jobs or max(1, (usable_threads() or 2) // 2)
        plan = Plan(jobs, options.timeout, options.keep_going, progress)
        runs, interrupted = run_tabs(chapter, [Part(tab) for tab in tabs], plan)
    if options.json:
        write_json(course_report.as_json(chapter, runs))
    else:
        write(*course_report.rendered(chapter, runs))
    if interrupted:
        return 128 + interrupted
    return int(any(_has_failed(run) for run in runs))


def _check_packages() -> None:
    missing = [package for module, package in _NEEDED.items() if find_spec(module) is None]
    if missing:
        names = " ".join(missing)
        raise ArgumentError(f"running a chapter needs {', '.join(missing)}; pip install {names}")


def _tabs(chapter: Chapter, names: Sequence[str]) -> list[str]:
    """The frameworks to run under; one empty name if the chapter has no tabs and imports none."""
    installed = available()
    chosen = tabs_to_run(chapter, names)
    for name in chosen:
        if name not in installed:
            raise not_installed(name)
    if chosen:
        return chosen
    if not chapter.tabs:
        imported = [name for name in chapter.imported() if name in installed]
        return imported[:1] or [str(backend())]
    tabs = [name for name in chapter.tabs if name in installed]
    for name in chapter.tabs:
        if name not in installed:
            print(f"xdevice: the tab {name} is left out: {not_installed(name)}", file=sys.stderr)
    if not tabs:
        raise not_installed(chapter.tabs[0])
    return tabs


def _ask_for_gpus(tabs: Sequence[str], options: argparse.Namespace) -> None:
    if not options.virtual_gpus:
        return
    provider().ask_for_children(
        options.virtual_gpus, options.stand_in, options.lenient, False, options.gpu_model
    )
    provider().check_limits(tabs)


def _has_failed(run: TabRun) -> bool:
    return not all(outcome.state == "ok" for outcome in run.outcomes)
