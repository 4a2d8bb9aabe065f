"""What the process of a tab is given, and the files with which it answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

JOB = "job.json"
OUTCOMES = "outcomes.jsonl"
PREPARED = -1
"""The number, among the outcomes, of what happens before the first cell."""


class Job(NamedTuple):
    """The cells of one tab, and how to run them."""

    cells: list[tuple[str, list[str]]]  # the code and the tags of each
    folder: str  # the working directory
    seed: int
    keep_going: bool  # after a cell that fails

    def write(self, folder: Path) -> None:
        (folder / JOB).write_text(json.dumps(self._asdict()), encoding="utf-8")
        (folder / OUTCOMES).touch()
