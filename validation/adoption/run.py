"""Replace another project's device code by xdevice in a copy of a checkout, and run its tests.

    python validation/adoption/run.py einops --needs
    python validation/adoption/run.py einops --checkout DIR [--before] [--after] [--virtual]
    python validation/adoption/run.py einops --checkout DIR --difference
    python validation/adoption/run.py geomstats --checkout DIR --issues
    python validation/adoption/run.py --page

projects.toml says which tests are run, and changes/ has one script for each project, which edits a
copy; the checkout stays as it is. `--before` runs the tests of the checkout, `--after` those of the
changed copy, `--virtual` those of the changed copy on two virtual GPUs; without one of them all
three are run. `--issues` runs our tests of a project's reported faults, in issues/, against the
checkout on two virtual GPUs. The figures are written to figures/PROJECT.json, from which `--page` makes the
tables of validation/adoption/README.md. Exit status 1 if a test fails after the change that passed
before.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import copying
import page
import projects
from pytest_runs import issues_of, run
from tree import Tree

FIGURES = projects.HERE / "figures"
MODES = ("before", "after", "virtual")


def main() -> int:
    options = parse()
    if options.page:
        page.write(FIGURES)
        return 0
    every = projects.read()
    if options.project not in every:
        raise SystemExit(f"{options.project!r} is not a project; name one of {', '.join(every)}")
    project = every[options.project]
    if options.needs:
        print(*project.install, *([project.distribution] if project.distribution else []))
        return 0
    modes = [mode for mode in (*MODES, "issues") if getattr(options, mode)] or list(MODES)
    if "issues" in modes and not issues_of(project).exists():
        raise SystemExit(f"{project.name}: issues/ has no tests of reported faults")
    with tempfile.TemporaryDirectory() as folder:
        original = copying.copy(project, options.checkout, Path(folder) / "original")
        changed = Tree(copying.copy(project, options.checkout, Path(folder) / "changed"))
        project.change(changed)
        if options.difference:
            for path in changed.changed():
                print(*changed.difference(path), sep="\n")
            return 0
        figures = read_figures(project.name)
        figures["project"] = f"{project.repository} {copying.version(project, options.checkout)}"
        figures["lines"] = changed.lines()
        for mode in modes:
            figures[mode] = run(
                project, original if mode in ("before", "issues") else changed.folder, mode
            )
            print(f"{project.name} {mode}: {page.in_words(figures[mode])}", flush=True)
            write_figures(project.name, figures)
    return report(figures)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("project", nargs="?", metavar="PROJECT", help="a project of projects.toml")
    add("--needs", action="store_true", help="list the packages that the tests need")
    add("--checkout", type=Path, help="the project's repository, or a folder to clone it to")
    add("--difference", action="store_true", help="print the change, and run nothing")
    add("--before", action="store_true", help="run the tests without the change")
    add("--after", action="store_true", help="run them with the change")
    add("--virtual", action="store_true", help="run them with the change on two virtual GPUs")
    add("--issues", action="store_true", help="run our tests of its reported faults")
    add("--page", action="store_true", help="write the tables of validation/adoption/README.md")
    return parser.parse_args()


def read_figures(name: str) -> dict[str, Any]:
    file = FIGURES / f"{name}.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def write_figures(name: str, figures: dict[str, Any]) -> None:
    file = FIGURES / f"{name}.json"
    file.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


def report(figures: dict[str, Any]) -> int:
    """Name the tests that fail only since the change."""
    there = {nameless(test) for test in figures.get("before", {}).get("fail", [])}
    new = [test for test in figures.get("after", {}).get("fail", []) if nameless(test) not in there]
    for test in new:
        print(f"fails since the change: {test}")
    return int(bool(new))


def nameless(test: str) -> str:
    """The test's id without parameters, which the change may name differently."""
    return re.sub(r"\[.*", "", test)


if __name__ == "__main__":
    sys.exit(main())
