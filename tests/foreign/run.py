"""Run another project's GPU tests on virtual GPUs that stand in, and say what came of each.

    python tests/foreign/run.py skorch [--list] [--needs] [--limit 20] [--match REGEX] [--json FILE] [--page]

rows.toml says where a project's tests are and what they need; `--list` without a name lists the rows. A GPU test is one
that is skipped, or not there, without GPUs, so the tests are collected twice. One that fails with GPUs is run again
without, where it or its counterpart for the CPU exists. The table counts, by cause: passed; cannot, for a reason that
docs/several/virtual*.md gives; fails on the CPU too; ours. `--page` writes the row into docs/several/foreign.md.

The repository is taken from `--checkouts`, and cloned there where it is missing; nothing of it is in this one.
Exit status 1 if a test's failure is ours.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import tomllib
from causes import count, in_words, sort_by_cause, write_row

HERE = Path(__file__).resolve().parent
GPUS = re.compile("cuda:0|cuda|CUDA|gpu")
"""What a test's id says where it is a GPU's; its counterpart says cpu, or CPU."""


def main() -> int:
    rows = tomllib.loads((HERE / "rows.toml").read_text())
    options = parse(rows)
    if options.row is None:
        for name, row in rows.items():
            print(f"{name}: {row['repository']} {row['tag']}")
        return 0
    row = rows[options.row]
    row["tag"] = options.tag or row["tag"]
    if options.needs:
        print(*row["install"])
        return 0
    checkout(row, options.checkouts)
    with tempfile.TemporaryDirectory() as folder:
        tests = Tests(row, options, Path(folder))
        names = [test for test in tests.of_gpus() if re.search(options.match, test)]
        if options.list:
            print(*names, sep="\n")
            return 0
        found = tests.run(names[:: max(1, len(names) // options.limit)] if options.limit else names)
        if not found:
            raise SystemExit("pytest ran none of the tests: see above")
        failed = [test for test, result in found.items() if result["outcome"] not in ("passed", "skipped")]
        causes = sort_by_cause(found, tests.fail_on_the_cpu(failed))
    if options.json:
        options.json.write_text(json.dumps(causes, indent=1))
    print(in_words(options.row, causes))
    if options.page:
        write_row(options.row, row, len(names), count(causes))
    return int(any(result["cause"] == "ours" for result in causes.values()))


def parse(rows: dict[str, Any]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("row", nargs="?", choices=list(rows), metavar="NAME", help=", ".join(rows))
    parser.add_argument("--list", action="store_true", help="list the row's GPU tests, or the rows")
    parser.add_argument("--needs", action="store_true", help="list the packages that the row needs")
    parser.add_argument("--limit", type=int, help="run about so many, spread over all")
    parser.add_argument("--match", default="", help="run those whose id the expression is found in")
    parser.add_argument("--json", type=Path, help="write what came of each test to this file")
    parser.add_argument("--tag", help="take the tests of this version, instead of the row's")
    parser.add_argument("--page", action="store_true", help="write the row into docs/several/foreign.md")
    parser.add_argument("--timeout", type=float, default=300, help="seconds for one test")
    parser.add_argument("--checkouts", type=Path, default=Path.home() / ".cache/xdevice-foreign")
    options = parser.parse_args()
    if options.row is None and not options.list:
        parser.error(f"name a row: {', '.join(rows)}")
    return options


def checkout(row: dict[str, Any], folder: Path) -> None:
    """Clone the files of the row's tests, where they are not there."""
    path = folder / row["repository"].rpartition("/")[2]
    if path.exists():
        return
    url = f"https://github.com/{row['repository']}"
    clone = ["git", "clone", "--depth", "1", "--filter=blob:none", "--sparse", "--branch", row["tag"], url, str(path)]
    subprocess.run(clone, check=True)
    where = row.get("folder", "")
    subprocess.run(["git", "sparse-checkout", "set", *row.get("files", [where or "tests"])], cwd=path, check=True)


class Tests:
    """A row's tests: collected, and run in processes of their own, so that one which ends a process is named."""

    def __init__(self, row: dict[str, Any], options: argparse.Namespace, folder: Path) -> None:
        self.row, self.options, self.folder = row, options, folder
        self.where = options.checkouts / row["repository"].rpartition("/")[2] / row.get("folder", "")
        self.errors: list[str] = []

    def of_gpus(self) -> list[str]:
        """The ids of the tests that need GPUs."""
        there = self.collect(gpus=True)
        if not there:
            raise SystemExit(f"pytest finds no tests in {self.where}: see above")
        if self.row.get("all"):
            return there
        without = set(self.collect(gpus=False))
        return [test for test in there if test not in without]

    def collect(self, gpus: bool) -> list[str]:
        lines = self.start(["--collect-only", "-q"], gpus)
        for line in lines:
            if "error" in line:
                print(f"{line['file']} cannot be imported: {line['error'].splitlines()[-1]}", file=sys.stderr)
        return [line["test"] for line in lines if "test" in line]

    def run(self, names: list[str], gpus: bool = True) -> dict[str, dict[str, str]]:
        """What came of each test; after one that ends the process the rest goes on in another."""
        found: dict[str, dict[str, str]] = {}
        todo = list(names)
        while todo:
            only = self.folder / "only"
            only.write_text("\n".join(todo))
            lines = self.start(["--foreign-only", str(only), *sorted({name.partition("::")[0] for name in todo})], gpus)
            for line in lines:
                if "test" in line:
                    self.note(found, line)
            started = [name for name, result in found.items() if result["outcome"] == "started"]
            for name in started:
                found[name] = {"outcome": "failed", "why": self.ended}
            if not started and not any(name in found for name in todo):
                return found  # they are not there
            todo = [name for name in todo if name not in found]
        return found

    @staticmethod
    def note(found: dict[str, dict[str, str]], line: dict[str, str]) -> None:
        """A failure of a test's teardown counts, also after it has passed."""
        before = found.get(line["test"], {}).get("outcome")
        if before != "failed":
            found[line["test"]] = {"outcome": line["outcome"], "why": line.get("why", "")}

    def fail_on_the_cpu(self, names: list[str]) -> set[str]:
        """Those of the tests that fail without GPUs too, by themselves or their counterpart for the CPU."""
        counterparts: dict[str, list[str]] = {}
        for name in names:
            file, _, test = name.partition("::")
            on_the_cpu = GPUS.sub(lambda word: "CPU" if word[0].isupper() else "cpu", test)
            for counterpart in {test, on_the_cpu}:
                counterparts.setdefault(f"{file}::{counterpart}", []).append(name)
        found = self.run(list(counterparts), gpus=False)
        failed = {name for name, result in found.items() if result["outcome"] == "failed"}
        return {test for name in failed for test in counterparts[name]}

    def start(self, arguments: list[str], gpus: bool) -> list[dict[str, str]]:
        """Run pytest, and return the plugin's lines; a process in which nothing happens for too long is ended."""
        log = self.folder / "log"
        log.write_text("")
        stand_in = ["-m", "xdevice", "run", "--virtual-gpus", str(self.row.get("gpus", 2)), "--stand-in"]
        pytest = ["-m", "pytest", "-p", "foreign_tests", "--rootdir=.", "-o", "addopts=", "--foreign-log", str(log)]
        files = [] if "--foreign-only" in arguments else self.row["tests"]
        command = [sys.executable, *stand_in * gpus, *pytest, *self.row.get("arguments", []), *arguments, *files]
        env = {**os.environ, **self.row.get("environment", {})}
        if not gpus:
            env |= self.row.get("environment_of_the_cpu", {})
        path = [str(HERE), *self.row.get("path", ["."]), *filter(None, [env.get("PYTHONPATH")])]
        env["PYTHONPATH"] = os.pathsep.join(path)
        env["PATH"] = os.pathsep.join(
            [str(Path(sys.executable).parent), env["PATH"]]
        )  # torchrun, and the project's own
        self.ended = wait(command, env, self.where, log, self.options.timeout)
        return [json.loads(line) for line in log.read_text().splitlines()]


def wait(command: list[str], env: dict[str, str], where: Path, log: Path, limit: float) -> str:
    """Run the command to its end, or until the log has not grown for so many seconds; returns how it ended."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command, env=env, cwd=where, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        size, since = -1, time.monotonic()
        while process.poll() is None:
            time.sleep(0.5)
            if log.stat().st_size != size:
                size, since = log.stat().st_size, time.monotonic()
                show(log)
            if time.monotonic() - since > limit:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                return f"did not end within {limit:.0f} s"
        output.seek(0)
        text = output.read().decode(errors="replace")
        if not log.stat().st_size:
            print(text[-3000:], file=sys.stderr)
        words = [line for line in text.splitlines() if line.strip()][-1:]
        return f"the process ended with {process.returncode}: {''.join(words)[:300]}"


def show(log: Path) -> None:
    """Progress, on one line of a terminal."""
    if sys.stderr.isatty():
        print(f"\r{sum(1 for _ in log.open())} events", end="", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
