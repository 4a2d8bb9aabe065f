"""Run another project's GPU tests on virtual GPUs that stand in, and say what came of each.

    python validation/foreign/run.py skorch [--list] [--needs] [--limit 20] [--match REGEX] [--json FILE] [--page]

rows.toml says where a project's tests are and what they need; `--list` without a name lists the rows. A GPU test is one
that is skipped, or not there, without GPUs, so the tests are collected twice; with `--by-running` those that are left
are run without GPUs, which finds the ones that skip themselves in a fixture or in their body. A test that fails with
GPUs is run again without, where it or its counterpart for the CPU exists. The result counts, by cause: passed; cannot,
for a reason that the pages on virtual GPUs give; fails on the CPU too; fails on GPUs too, as the row says; lacks a
package or a download; was not run, such as the tests of a file that cannot be imported; ours. `--page` writes the row
into validation/foreign/README.md.

The repository is taken from `--checkouts`, and cloned there where it is missing; nothing of it is in this one. What
came of each test is kept in `--kept` as it comes: a run that was stopped goes on where it was, `--fresh` begins again.
Exit status 1 if a failure is ours, if tests were not run, or if none has passed.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

import rows
from causes import Results, is_right, sort_by_cause
from checkouts import tests_of
from kept import Kept, outcomes
from processes import Pytest
from report import in_words, write_row

GPUS = re.compile("cuda:0|cuda|CUDA|gpu")
"""What a test's id says where it is a GPU's; its counterpart says cpu, or CPU."""
CACHE = Path.home() / ".cache/xdevice-foreign"


def main() -> int:
    options = parse()
    every = rows.read(options.rows)
    if options.row not in every and not (options.row is None and options.list):
        raise SystemExit(
            f"{options.row!r} is not a row; name one of {', '.join(every)}, or ask for the --list"
        )
    if options.row is None:
        for name, row in every.items():
            print(f"{name}: {row['repository']} {row.get('tag', 'as it is installed')}")
        return 0
    if options.needs:
        print(*every[options.row]["install"])
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped; what has come is kept"))
    row = rows.at(every[options.row], options.tag)
    where = tests_of(row, options.checkouts, options.mirror)
    kept = Kept(
        options.kept / f"{options.row}@{row['tag']}".replace("/", "+"), about(row), options.fresh
    )
    with tempfile.TemporaryDirectory() as folder:
        tests = Tests(Pytest(row, where, Path(folder), options.timeout), kept, options.by_running)
        names = [test for test in tests.of_gpus() if re.search(options.match, test)]
        if options.list:
            print(*names, sep="\n")
            return 0
        causes = tests.causes(spread(names, options.limit))
    if options.json:
        options.json.write_text(json.dumps(causes, indent=1))
    print(in_words(options.row, causes))
    if options.page:
        write_row(options.row, row, len(names), causes)
    return int(not is_right(causes))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("row", nargs="?", metavar="NAME", help="a row of rows.toml")
    add("--list", action="store_true", help="list the row's GPU tests, or the rows")
    add("--needs", action="store_true", help="list the packages that the row needs")
    add(
        "--by-running",
        action="store_true",
        help="run all without GPUs, to find those that skip themselves",
    )
    add("--limit", type=int, help="run so many, spread over all")
    add("--match", default="", help="run those whose id the expression is found in")
    add("--json", type=Path, help="write what came of each test to this file")
    add("--tag", help="take the tests of this version, instead of the row's")
    add("--page", action="store_true", help="write the row into validation/foreign/README.md")
    add("--timeout", type=float, default=300, help="seconds for one test")
    add("--fresh", action="store_true", help="forget what is kept of this row")
    add(
        "--checkouts",
        type=Path,
        default=CACHE / "checkouts",
        help="where repositories are cloned to",
    )
    add("--kept", type=Path, default=CACHE / "kept", help="where results are kept")
    add("--rows", type=Path, default=rows.ROWS, help="the file with the rows")
    add(
        "--mirror",
        default="https://github.com",
        help="what repositories are cloned from, as OWNER/NAME",
    )
    return parser.parse_args()


def about(row: dict[str, Any]) -> dict[str, Any]:
    """What results depend on: those of another row, Python or package are not gone on with."""
    packages = {found.name: found.version for found in metadata.distributions() if found.name}
    row = {key: value for key, value in row.items() if key != "fails_on_gpus"}
    return {"row": row, "python": sys.version, "packages": packages}


def spread(names: list[str], limit: int | None) -> list[str]:
    """So many of the names, at equal distances."""
    if not limit or limit >= len(names):
        return names
    return [names[i * len(names) // limit] for i in range(limit)]


class Tests:
    """A row's tests: collected, and run in processes of their own, so that one which ends a process is named."""

    def __init__(self, pytest: Pytest, kept: Kept, by_running: bool) -> None:
        self.pytest, self.kept = pytest, kept
        self.by_running = by_running or pytest.row.get("by_running", False)

    def of_gpus(self) -> list[str]:
        """The ids of the tests that need GPUs."""
        there = self.collect(gpus=True)
        if not there and not self.not_collected(gpus=True):
            raise SystemExit(f"pytest finds no tests in {self.pytest.where}: see above")
        if self.pytest.row.get("all"):
            return there
        on_both = set(self.collect(gpus=False)).intersection(there)
        if self.by_running:
            found = self.run([test for test in there if test in on_both], gpus=False)
            on_both -= {test for test, result in found.items() if result["outcome"] == "skipped"}
        return [test for test in there if test not in on_both]

    def collect(self, gpus: bool) -> list[str]:
        if not any("collected" in line for line in self.kept.lines("collected", gpus)):
            file = self.kept.file("collected", gpus)
            file.write_text("")
            self.pytest.start(["--collect-only", "-q"], gpus, file)
        return [line["test"] for line in self.kept.lines("collected", gpus) if "test" in line]

    def not_collected(self, gpus: bool) -> Results:
        """Files whose tests are not there, since they cannot be imported or skip themselves as a whole."""
        return {line["file"]: line for line in self.kept.lines("collected", gpus) if "file" in line}

    def causes(self, names: list[str]) -> Results:
        """What came of the tests, and of the files that have none."""
        files = self.not_collected(gpus=True)
        broken = {file for file, line in files.items() if line["outcome"] == "failed"}
        if broken:
            self.collect(gpus=False)
        there = self.not_collected(gpus=False)
        on_the_cpu = {file for file in broken if there.get(file, {}).get("outcome") == "failed"}
        found = self.run(names, gpus=True)
        failed = [test for test, result in found.items() if result["outcome"] == "failed"]
        on_the_cpu |= self.fail_on_the_cpu(failed)
        on_gpus = self.pytest.row.get("fails_on_gpus", {})
        return sort_by_cause({**files, **found}, on_the_cpu, on_gpus)

    def run(self, names: list[str], gpus: bool) -> Results:
        """What came of each test; after one that ends the process the rest goes on in another."""
        ended = ""
        while todo := self.left(names, gpus):
            self.kept.add("run", gpus, process="begins")
            ended = self.pytest.start(todo, gpus, self.kept.file("run", gpus))
            _, begun = outcomes(self.kept.lines("run", gpus))
            for test in begun:  # which has ended the process
                self.kept.add("run", gpus, test=test, outcome="failed", why=ended)
                self.kept.add("run", gpus, test=test, outcome="over")
            if self.left(names, gpus) == todo:
                break  # pytest does not find them again
        over, _ = outcomes(self.kept.lines("run", gpus))
        lost = {"outcome": "lost", "why": f"pytest did not run it; {ended}"}
        return {name: dict(over.get(name, lost)) for name in names}

    def left(self, names: list[str], gpus: bool) -> list[str]:
        over, _ = outcomes(self.kept.lines("run", gpus))
        return [name for name in names if name not in over]

    def fail_on_the_cpu(self, names: list[str]) -> set[str]:
        """Those of the tests that fail without GPUs too, by themselves or their counterpart for the CPU."""
        counterparts: dict[str, list[str]] = {}
        there = set(self.collect(gpus=False)) if names else ()
        for name in names:
            file, _, test = name.partition("::")
            on_the_cpu = GPUS.sub(lambda word: "CPU" if word[0].isupper() else "cpu", test)
            for counterpart in {f"{file}::{test}", f"{file}::{on_the_cpu}"}.intersection(there):
                counterparts.setdefault(counterpart, []).append(name)
        found = self.run(list(counterparts), gpus=False)
        failed = {name for name, result in found.items() if result["outcome"] == "failed"}
        return {test for name in failed for test in counterparts[name]}


if __name__ == "__main__":
    sys.exit(main())
