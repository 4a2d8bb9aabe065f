"""Run published GPU programs, unedited, on virtual GPUs and on the CPU, and say what came of each.

    python validation/programs/run.py --list
    python validation/programs/run.py nanoGPT/defaults torchtitan
    python validation/programs/run.py --quick

programs.toml has a row for each: the repository and commit, the packages, the command with the program's own options
that make it small, and what is compared. Each row runs twice, with GPUs that stand in and without any, in a checkout
that is made as it was committed before either run. No program is in this repository. Data sets and pretrained models
that a program would download are small files of random numbers in the place where it looks (files.py).

--python takes an environment of yours instead of making one for each framework, --mirror a folder or a host with the
repositories as OWNER/NAME. The exit status is 1 where a row does not come out as programs.toml says.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import cells
import numbers_in
import places
import tomllib

ROWS = Path(__file__).with_name("programs.toml")
CELLS = Path(cells.__file__).resolve()
FILES = CELLS.with_name("files.py")


def rows(path: Path = ROWS) -> dict[str, dict[str, Any]]:
    """Each row by its name, ``project/row``, with what its project says of all its rows."""
    found = {}
    for project, table in tomllib.loads(path.read_text(encoding="utf-8")).items():
        shared = {key: value for key, value in table.items() if not isinstance(value, dict)}
        for name, row in table.items():
            if isinstance(row, dict):
                found[f"{project}/{name}"] = {
                    "gpus": 1,
                    "run": "",
                    "gpu": "",
                    "cpu": "",
                    **shared,
                    **row,
                }
    return found


def chosen(names: list[str], quick: bool, framework: str) -> dict[str, dict[str, Any]]:
    """The rows that were asked for: those of a project or framework, one row, or the quick ones."""
    every = rows()
    for name in names:
        if not any(name in (row, row.partition("/")[0]) for row in every):
            raise SystemExit(
                f"there is no row {name!r} in {ROWS.name}; --list shows those that are there"
            )
    wanted = [row for row in every if not names or row in names or row.partition("/")[0] in names]
    found = {name: every[name] for name in wanted if every[name].get("quick") or not quick}
    return {name: row for name, row in found.items() if framework in ("all", row["framework"])}


class Runner:
    """Runs one row, where and with what the options say."""

    def __init__(self, row: dict[str, Any], name: str, options: argparse.Namespace) -> None:
        self.row, self.options = row, options
        if options.python:
            self.python = Path(options.python).absolute()
        else:
            self.python = places.environment(
                options.folder, row["framework"], row.get("needs", "").split()
            )
        self.repository = row.get("repository") or f"none/{name.replace('/', '-')}"

    def fresh(self) -> Path:
        """The checkout as it was committed, and the files that stand in for data sets."""
        if "repository" in self.row:
            here = places.checkout(
                self.options.folder,
                self.repository,
                self.row.get("commit", ""),
                self.options.mirror,
            )
        else:
            here = self.options.folder / self.repository.replace("/", "+")
            here.mkdir(parents=True, exist_ok=True)
        here /= self.row.get("folder", "")
        for line in self.row.get("files", []):
            maker, *where = line.split()
            made = (
                self.options.folder / "files" / maker / Path(where[0]).name
            )  # a model takes long to make
            if not made.exists():
                self.must([str(FILES), maker, str(made)], here)
            for place in where:
                places.copied(made, here / place)
        for line in self.row.get("before", []):
            self.must(shlex.split(line), here)
        return here

    def must(self, words: list[str], here: Path, output: int = subprocess.PIPE) -> None:
        """Run a Python program that has to succeed; a service keeps a pipe open, so its output is thrown away."""
        done = self.start([str(self.python), *words], here, output)
        if done.returncode:
            raise SystemExit(
                f"{shlex.join(words)} ended with {done.returncode}: {(done.stderr or '')[-2000:]}"
            )

    def start(
        self, words: list[str], here: Path, output: int = subprocess.PIPE
    ) -> subprocess.CompletedProcess[str]:
        own = dict(setting.split("=", 1) for setting in self.row.get("env", []))
        paths = [str(here / path) for path in self.row.get("path", [])]
        env = {
            **os.environ,
            "MPLBACKEND": "agg",
            "HF_HUB_OFFLINE": "1",
            "HF_HOME": str(here / ".hf"),
            "PYTHONUNBUFFERED": "1",
            **own,
            "PATH": os.pathsep.join([str(self.python.parent), os.environ["PATH"]]),
            "PYTHONPATH": os.pathsep.join([*paths, *filter(None, [os.environ.get("PYTHONPATH")])]),
        }
        limit = self.row.get("seconds", self.options.timeout)
        began = subprocess.Popen(
            words,
            stdout=output,
            stderr=output,
            text=True,
            errors="replace",
            cwd=here,
            env=env,
            start_new_session=True,
        )
        try:
            printed, said = began.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(began.pid, signal.SIGKILL)  # the processes that it has started too
            printed, said = began.communicate()
            code = 0 if "seconds" in self.row else 124
            return subprocess.CompletedProcess(
                words, code, printed, f"{said}\nran past {limit:g} seconds"
            )
        return subprocess.CompletedProcess(words, began.returncode, printed, said)

    def run(self, gpus: int) -> subprocess.CompletedProcess[str]:
        """One run, on so many virtual GPUs, or on the CPU; there the same command is not run twice."""
        row = self.row
        words = shlex.split(
            f"{row['run'] if gpus else row.get('alone', row['run'])} {row['gpu' if gpus else 'cpu']}"
        )
        words = [str(CELLS) if word == "cells" else word for word in words]
        known = (self.repository, *words)
        if not gpus and known in ALONE:
            return ALONE[known]
        here = self.fresh()
        start = []
        if gpus:
            command = "watch" if self.options.watch else "emulate"
            start = [
                "-m",
                "xdevice",
                command,
                "--gpus",
                str(gpus),
                "--",
            ]
        elif not words[0].endswith(".py"):
            start = ["-c", LAUNCH]
        where = f"{gpus} virtual GPUs" if gpus else "the CPU"
        print(f"  on {where}: {shlex.join(words)} …", file=sys.stderr, flush=True)
        for line in row.get("start", []):  # a service that the program needs
            self.must([*(start or ["-c", LAUNCH]), *shlex.split(line)], here, subprocess.DEVNULL)
        began = time.perf_counter()
        done = self.start([str(self.python), *start, *words], here)
        for line in row.get("stop", []):
            self.must(["-c", LAUNCH, *shlex.split(line)], here)
        print(
            f"  … {time.perf_counter() - began:.0f} s, exit status {done.returncode}",
            file=sys.stderr,
            flush=True,
        )
        if self.options.verbose or (done.returncode and not cell_outcomes(done.stdout)):
            print(done.stdout[-2500:], done.stderr[-2500:], sep="\n", file=sys.stderr)
        if not gpus:
            ALONE[known] = done
        return done


ALONE: dict[tuple[str, ...], subprocess.CompletedProcess[str]] = {}
"""What the CPU's runs printed."""
LAUNCH = "import os, sys; os.execvp(sys.argv[1], sys.argv[1:])"


def cell_outcomes(printed: str) -> list[tuple[int, str]]:
    """The number of each cell and its error, where the program has cells."""
    lines = [line for line in printed.split("\n") if line.startswith(cells.MARK)]
    return [tuple(json.loads(line.removeprefix(cells.MARK))) for line in lines]


def result(row: dict[str, Any], name: str, options: argparse.Namespace) -> tuple[bool, str]:
    """Whether a row comes out as it should, and what came of it."""
    runner = Runner(row, name, options)
    on_gpus = runner.run(options.gpus or row["gpus"])
    outcomes = cell_outcomes(on_gpus.stdout)
    failed = {i: error for i, error in outcomes if error}
    good = on_gpus.returncode == 0 or (bool(failed) and on_gpus.returncode != 124)
    said = ["runs" if good else f"exit status {on_gpus.returncode}"]
    if outcomes:
        said = [
            f"{len(outcomes) - len(failed)} of {len(outcomes)} cells",
            *map("cell {0[0]}: {0[1]}".format, failed.items()),
        ]
    if failed:  # they may on the CPU too
        alone = {i for i, error in cell_outcomes(runner.run(0).stdout) if error}
        good = good and alone >= failed.keys()
        said.append(f"{len(alone)} fail on the CPU")
    if good and "agree" in row:
        agrees, sentence = agreement(row, on_gpus, runner.run(0))
        good = agrees
        said.append(sentence)
    return good, "; ".join(said)


def agreement(row: dict[str, Any], *done: subprocess.CompletedProcess[str]) -> tuple[bool, str]:
    """Whether the numbers that a row compares agree, and a sentence."""
    pattern = row.get("numbers", numbers_in.FRACTION)
    both = [
        numbers_in.numbers(each.stdout + each.stderr * ("numbers" in row), pattern) for each in done
    ]
    if "seconds" in row:
        both = [found[: min(map(len, both))] for found in both]
    apart, sentence = numbers_in.agreement(*both, row["agree"])
    return apart <= row.get("apart", 0) and bool(both[0]), sentence


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", help="rows or projects (all)")
    add("--list", action="store_true", help="say what the rows are, and run none")
    add(
        "--framework",
        default="all",
        choices=["all", *places.FRAMEWORKS],
        help="only those of one framework",
    )
    add("--quick", action="store_true", help="only those that take less than two minutes")
    add(
        "--folder",
        type=Path,
        default=Path.home() / ".cache" / "xdevice-programs",
        help="where checkouts and environments are kept",
    )
    add("--python", help="run all with this Python, and install nothing")
    add("--mirror", default="https://github.com", help="where repositories are cloned from")
    add("--gpus", type=int, help="virtual GPUs, instead of what a row says")
    add("--timeout", type=float, default=600.0, help="seconds for each run (600)")
    add("--watch", action="store_true", help="run by xdevice watch")
    add("--verbose", action="store_true", help="show what the programs print")
    options = parser.parse_args()
    wanted = chosen(options.names, options.quick, options.framework)
    if options.list:
        for name, row in wanted.items():
            print(f"{name:<40} {row['framework']:<11} {row.get('says', '')}")
        return 0
    options.folder = options.folder.absolute()
    options.folder.mkdir(parents=True, exist_ok=True)
    failed = []
    for name, row in wanted.items():
        print(name, file=sys.stderr, flush=True)
        good, said = result(row, name, options)
        print(f"{'as it says' if good else 'NOT AS IT SAYS'}  {name}: {said}", flush=True)
        failed += [] if good else [name]
    print(f"{len(wanted) - len(failed)} passed, {len(failed)} failed")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
