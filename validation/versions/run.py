"""What a version of a framework breaks: the contract suite and more under several versions, and a table of what passed.

    python validation/versions/run.py torch newest
    python validation/versions/run.py numpy 1.23.5 1.26.4 newest newest@python3.13
    python validation/versions/run.py jax oldest --with numpy==1.26.4 --checks contract
    python validation/versions/run.py torch newest --program ~/nanoGPT --venvs ~/venvs --json torch.json -- -k scope

Each version gets a virtual environment of its own, with the framework, the framework's own requirements, pytest and a
wheel made from this checkout. ``oldest`` is the lowest version that pyproject.toml admits, ``newest`` the newest that
is released, ``pre`` the newest of all; an ``@`` and an interpreter follow a version for another Python. The checks:

    contract   the contract suite, on the CPU
    virtual    the same on virtual GPUs
    stand-in   the same on virtual GPUs that stand in for real ones
    names      the framework's private names that have gone, by the feature that needs them
    readme     the README's examples
    program    one published program (validation/programs), unedited; left out where its repository cannot be cloned

A version that does not install has the reason in its row. The exit status is 1 if a check failed or a version did not
install. It needs rich, and pip or uv: ``pip install rich uv``. With uv, ``UV_TORCH_BACKEND=cpu`` in the environment
brings builds of PyTorch for the CPU.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import environments
from checks import CHECKS, PROGRAMS, Run, Tried, checks_for
from environments import PACKAGES, bare
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterator

console = Console(stderr=True, highlight=False)


def try_version(
    name: str, asked: str, options: argparse.Namespace, wheel: Path, venvs: Path
) -> dict[str, Any]:
    """One version's row: what was installed, and what came of each check."""
    version, _, interpreter = asked.partition("@")
    version = environments.lowest(name) if version == "oldest" else version
    interpreter = interpreter or options.python
    packages = [*environments.wanted(name, version), *options.packages]
    parts = [interpreter.strip("/"), version, *packages]
    folder = venvs / "-".join(re.sub(r"[^\w.]+", "_", part) for part in parts)
    row: dict[str, Any] = {"framework": name, "asked": asked, "with": options.packages, "runs": {}}
    with progress(f"{name} {asked}: installing {' '.join(packages)}"):
        python = environments.make(folder, interpreter)
        row["error"] = environments.install(python, version, packages, wheel)
    if row["error"]:
        console.print(f"{name} {asked}: {row['error']}", markup=False, soft_wrap=True)
    else:
        row["installed"] = environments.installed(
            python, [PACKAGES[name], "numpy", "keras", *map(bare, options.packages)]
        )
        for check in checks_for(name, options.checks):
            row["runs"][check] = outcome(check, f"{name} {asked}", Tried(name, python, options))
    if options.venvs is None:
        shutil.rmtree(folder)
    return row


def outcome(check: str, title: str, tried: Tried) -> dict[str, Any]:
    """What came of one check, shown as it comes."""
    with progress(f"{title}: {check}"):
        run = CHECKS[check][1](tried)
    console.print(
        f"{title}: {check}: {run.summary} in {run.seconds:.0f} s", markup=False, soft_wrap=True
    )
    for message, count in Counter(run.failures.values()).most_common(20):
        first = next(test for test in run.failures if run.failures[test] == message)
        console.print(f"    {count} × {message} ({first})", markup=False, soft_wrap=True)
    return run._asdict()


@contextlib.contextmanager
def progress(text: str) -> Iterator[None]:
    """A spinner while it lasts; a line, where the output is a file."""
    if console.is_terminal:
        with console.status(text):
            yield
    else:
        console.print(text, markup=False, soft_wrap=True)
        yield


def table_of(rows: list[dict[str, Any]], gpus: int) -> Table:
    """The rows as they are shown, with a column for each check that was run."""
    run = [check for check in CHECKS if any(check in row["runs"] for row in rows)] or ["contract"]
    table = Table(
        "framework",
        "version",
        "Python",
        "NumPy",
        *[CHECKS[check][0].format(gpus=gpus) for check in run],
    )
    for row in rows:
        found = row.get("installed", {})
        words = [found.get(PACKAGES[row["framework"]], row["asked"])]
        words += [
            f"{name} {found.get(name, '')}" for name in map(bare, row["with"]) if name != "numpy"
        ]
        cells = [
            Run(**row["runs"][check]).summary if check in row["runs"] else "–" for check in run
        ]
        if row["error"]:
            cells = [row["error"]]
        table.add_row(
            row["framework"],
            " + ".join(words),
            found.get("python", ""),
            found.get("numpy", ""),
            *cells,
        )
    return table


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("framework", choices=PACKAGES)
    add("versions", nargs="+", help="such as 2.4.1, oldest, newest, pre or newest@python3.13")
    add("--checks", default=",".join(CHECKS), help=f"some of {','.join(CHECKS)} (all)")
    add("--python", default=sys.executable, help="the interpreter (this one)")
    add(
        "--with",
        dest="packages",
        action="append",
        default=[],
        metavar="PACKAGE",
        help="also install: numpy==1.26.4",
    )
    add(
        "--venvs",
        type=Path,
        help="keep the environments in this folder, and use them again (a temporary one)",
    )
    add("--virtual-gpus", type=int, default=2, metavar="N", help="how many virtual GPUs (2)")
    add(
        "--tests",
        default="tests/contract",
        help="files and folders, relative to the repository (tests/contract)",
    )
    rows = ", ".join(PROGRAMS.values())
    add(
        "--program",
        metavar="CLONE",
        help=f"a clone of the program's repository, instead of GitHub's ({rows})",
    )
    add("--timeout", type=float, default=1800.0, help="seconds for each run of tests (1800)")
    add("--json", type=Path, metavar="FILE", help="write all rows, with the reason of each failure")
    add("--verbose", action="store_true", help="show what the tests and the program print")
    words = sys.argv[1:]
    cut = words.index("--") if "--" in words else len(words)
    options = parser.parse_args(words[:cut])
    if unknown := set(options.checks.split(",")) - set(CHECKS):
        parser.error(f"there is no check {sorted(unknown)[0]!r}; there are {', '.join(CHECKS)}")
    options.pytest = words[cut + 1 :]
    return options


def main() -> int:
    options = parsed()
    with tempfile.TemporaryDirectory() as folder:
        wheel = environments.make_wheel(Path(folder))
        venvs = (options.venvs or Path(folder)).absolute()
        rows = [
            try_version(options.framework, asked, options, wheel, venvs)
            for asked in options.versions
        ]
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    Console().print(table_of(rows, options.virtual_gpus))
    runs = [Run(**run) for row in rows for run in row["runs"].values()]
    return int(any(row["error"] for row in rows) or not all(run.is_good for run in runs))


if __name__ == "__main__":
    sys.exit(main())
