"""What has come of a row's tests so far, in files that are written while they run: a run that was stopped goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Line = dict[str, Any]


class Kept:
    """A folder with the plugin's lines: a file for each collection, and one for each way to run."""

    def __init__(self, folder: Path, about: dict[str, Any], fresh: bool) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "about.json"
        same = file.exists() and json.loads(file.read_text()) == about
        if fresh or not same:
            for old in folder.glob("*.jsonl"):
                old.unlink()
        file.write_text(json.dumps(about, indent=1, sort_keys=True))

    def file(self, what: str, gpus: bool) -> Path:
        """The file that the plugin appends to, which is there."""
        path = self.folder / f"{what}-{'gpus' if gpus else 'cpu'}.jsonl"
        path.touch()
        return path

    def lines(self, what: str, gpus: bool) -> Iterator[Line]:
        """Those that are whole: the last one may not be."""
        for line in self.file(what, gpus).read_text().splitlines():
            try:
                yield json.loads(line)
            except json.JSONDecodeError:
                continue

    def add(self, what: str, gpus: bool, **line: object) -> None:
        with self.file(what, gpus).open("a") as file:
            file.write(json.dumps(line) + "\n")


def outcomes(lines: Iterator[Line]) -> tuple[dict[str, Line], set[str]]:
    """What came of each test that is over, and the tests that began and are not over.

    A failure of a test's teardown counts, also after it has passed. A test that was not over when run.py was stopped
    begins again.
    """
    over: dict[str, Line] = {}
    begun: dict[str, Line] = {}
    for line in lines:
        name, outcome = line.get("test"), line.get("outcome")
        if "process" in line:
            begun.clear()
        if name is None:  # a file that cannot be collected
            continue
        if outcome == "started":
            begun[name] = {"outcome": "passed", "why": ""}
        elif outcome == "over":
            over[name] = begun.pop(name, over.get(name, {}))
        elif outcome and begun.get(name, {}).get("outcome") != "failed":
            begun[name] = {"outcome": outcome, "why": line.get("why", "")}
    return over, set(begun)
