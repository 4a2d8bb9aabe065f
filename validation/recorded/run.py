"""Run chapters whose outputs were recorded on real GPUs, unedited, on virtual GPUs, and compare cell by cell.

    python validation/recorded/run.py --list
    python validation/recorded/run.py --tab pytorch chapter_builders-guide/init
    python validation/recorded/run.py --write
    python validation/recorded/run.py --sums
    python validation/recorded/run.py --notebook published.ipynb --gpu-model t4 --show

courses.toml names the repository, its commit and its chapters. No text, code or output of theirs is in this repository:
the tool reads a checkout. The exit status is 1 if a cell comes out worse than validation/recorded/README.md has it, or
differs without an explanation.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import chapters
import page
import tomllib
from causes import CAUSES, NOTEBOOK_NEEDS, Chapter, Result, explained
from chapters import FRAMEWORKS
from processes import run

HERE = Path(__file__).resolve().parent
COURSES = HERE / "courses.toml"
MODEL = "rtx4090"
OTHER_SEEDS = "20261", "20262", "20263"


def rows(courses: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """The course, chapter and tab of each row."""
    for course, table in courses.items():
        for chapter, tabs in table["chapters"].items():
            for tab in tabs.split():
                yield course, chapter, tab


def needs(courses: dict[str, Any], wanted: list[tuple[str, str, str]]) -> list[str]:
    """The packages that rows need beside their frameworks."""
    groups = {(course, group) for course, _, tab in wanted for group in ("all", tab)}
    return sorted({name for course, group in groups for name in courses[course]["needs"][group]})


def missing(names: list[str]) -> list[str]:
    """Those of these packages that are not installed."""
    installed = {each.name.lower().replace("_", "-") for each in metadata.distributions()}
    return [name for name in names if name not in installed]


def checkout(course: dict[str, Any], options: argparse.Namespace) -> Path:
    """The course at its commit: a folder of the user's, or a clone."""
    if options.checkout:
        return at_commit(Path(options.checkout).resolve(), course["commit"], options)
    here = options.folder.absolute() / course["repository"].replace("/", "+")
    if not here.exists():
        url = f"{options.mirror.rstrip('/')}/{course['repository']}"
        git("clone", "--quiet", "--filter=blob:none", url, str(here))
    git("-C", str(here), "checkout", "--quiet", "--force", "--detach", course["commit"])
    return here


def at_commit(folder: Path, commit: str, options: argparse.Namespace) -> Path:
    """The user's folder. If it is a checkout of another commit, that is said, and its rows are not written."""
    if not folder.is_dir():
        raise SystemExit(f"{folder} is not a folder; leave --checkout out to clone the course")
    if (folder / ".git").exists():
        words = ["git", "-C", str(folder), "rev-parse", "HEAD"]
        head = subprocess.run(words, capture_output=True, text=True).stdout.strip()
        if head != commit:
            apart = f"{folder} is at commit {head[:12]}, the page's rows at {commit[:12]}"
            if options.write:
                raise SystemExit(f"{apart}; git -C {folder} checkout {commit}")
            print(apart, file=sys.stderr)
    return folder


def git(*words: str) -> None:
    if failed := subprocess.run(["git", *words]).returncode:
        raise SystemExit(f"git {' '.join(words)} ended with {failed}")


def compared(course: Path, chapter: str, tab: str, options: argparse.Namespace) -> list[Result]:
    """The result of each cell of a chapter."""
    recorded, source = chapters.recorded(course, chapter, tab), course / f"{chapter}.md"
    if recorded is None or not source.exists():
        raise SystemExit(f"{chapter} has no recorded outputs under {tab} in {course}")
    of = Chapter(tab, chapters.read(source, tab), recorded, explained())
    return results_of(of, source, options)


def results_of(of: Chapter, source: Path, options: argparse.Namespace) -> list[Result]:
    """The result of each cell; further runs, with other seeds, only as long as there is a question.

    Two runs may print the same by chance: so many heads of a hundred coins.
    """
    runs = [run(source, of.tab, options)]
    found = of.results(*runs)
    for seed in OTHER_SEEDS:
        questions = [each.cell for each in found if each.cause == "ours"]
        if not (questions := [cell for cell in questions if not runs[0][cell]["error"]]):
            break
        runs.append(run(source, of.tab, options, "--seed", seed, "--last", questions[-1]))
        found = of.results(*runs)
    return found


def compared_notebook(source: Path, options: argparse.Namespace) -> page.Row:
    """The row of a notebook that has its outputs in its file."""
    code = chapters.notebook(source)
    tab = options.tab[0] if options.tab else chapters.notebook_tab(code)
    if not tab:
        raise SystemExit(f"{source} imports no framework; add --tab, as in --tab jax")
    cells, recorded = chapters.notebook_cells(code), chapters.notebook_outputs(code)
    found = results_of(Chapter(tab, cells, recorded, explained(), NOTEBOOK_NEEDS), source, options)
    row = page.Row.of(source.name, tab, found)
    print(row.in_words(), flush=True)
    show(found, options.show)
    return row


def show(results: list[Result], every: bool) -> None:
    """The cells that differ, each beside what was recorded."""
    for result in results:
        if result.cause not in ("same", "not run") and (every or result.cause == "ours"):
            amount = f" {result.amount:.3g}" * bool(result.amount)
            print(f"    {result.cell}: {CAUSES[result.cause]}{amount} {result.words}".rstrip())
            print(f"      here   {' '.join(result.here.split())[:600]}")
            print(f"      there  {' '.join(result.there.split())[:600]}", flush=True)


def chosen(options: argparse.Namespace) -> list[tuple[str, str, str]]:
    found = [
        row
        for row in rows(tomllib.loads(COURSES.read_text(encoding="utf-8")))
        if (not options.tab or row[2] in options.tab)
        and (not options.names or any(row[1].startswith(name) for name in options.names))
    ]
    if not found:
        raise SystemExit(f"no row of {COURSES.name} is so named; --list shows them")
    return found


def parsed() -> argparse.Namespace:
    """The options, checked as far as they alone can be."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", help="chapters, or how their names begin (all)")
    add("--tab", action="append", choices=FRAMEWORKS, help="only these frameworks' cells")
    add("--list", action="store_true", help="print the rows, and run none")
    add("--needs", action="store_true", help="print the packages that the rows need, and run none")
    add("--write", action="store_true", help="put what came of the rows into the page")
    add(
        "--sums",
        action="store_true",
        help="write the sums on the page and in docs/validation.md, and run none",
    )
    add("--show", action="store_true", help="print each cell that differs, also those explained")
    add("--checkout", help="a checkout of the course, in place of a clone")
    add("--data", type=Path, help="a folder with the chapters' downloads, by their names")
    add("--notebook", type=Path, nargs="+", help="notebooks with outputs, in place of chapters")
    add("--mirror", default="https://github.com", help="where repositories are cloned from")
    add("--folder", type=Path, default=Path.home() / ".cache" / "xdevice-recorded")
    add("--gpus", type=int, help="how many virtual GPUs (2; 1 for notebooks)")
    add("--gpu-model", default=MODEL, help=f"the model of the virtual GPUs ({MODEL})")
    add("--seconds", type=float, default=600.0, help="begin no cell after so many (600)")
    add("--page", type=Path, default=page.PAGE, help="the page with the results")
    add("--verbose", action="store_true", help="show what the processes print")
    options = parser.parse_args()
    if options.data and not options.data.is_dir():
        parser.error(f"{options.data} is not a folder; --data takes one with the downloads")
    others = options.data or options.notebook or options.gpus or options.gpu_model != MODEL
    if options.write and others:
        parser.error("--write is for chapters without --data, on the virtual GPUs of the page")
    options.gpus = options.gpus or (1 if options.notebook else 2)
    return options


def main() -> int:
    options = parsed()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    if options.notebook:
        made = [compared_notebook(path, options) for path in options.notebook]
        return int(any(row.counts["ours"] for row in made))
    wanted = chosen(options)
    if options.list:
        print(*(f"{chapter} {tab}" for _, chapter, tab in wanted), sep="\n")
        return 0
    if options.sums:
        page.write(options.page)
        return 0
    courses = tomllib.loads(COURSES.read_text(encoding="utf-8"))
    if options.needs:
        print(*needs(courses, wanted))
        return 0
    lacking = missing(needs(courses, wanted))
    folders = {course: checkout(courses[course], options) for course, _, _ in wanted}
    if lacking:
        words = " ".join(lacking)
        print(f"cells that import {words} will fail; pip install {words}", file=sys.stderr)
    bad = 0
    for course, chapter, tab in wanted:
        began = time.monotonic()
        results = compared(folders[course], chapter, tab, options)
        row = page.Row.of(chapter, tab, results)
        worse = page.worse(row, page.read(options.page).get((chapter, tab)))
        bad += bool(worse or row.counts["ours"])
        print(f"{row.in_words()} ({time.monotonic() - began:.0f} s) {worse}", flush=True)
        show(results, options.show)
        if options.write:
            page.write(options.page, row)
    print(f"{len(wanted) - bad} passed, {bad} failed")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
