"""What came of each cell of a tab: its text, its error, its pictures and curves."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from xdevice.tools.course.displays import (
    Curve,
    Output,
    Picture,
    curves_of,
    pictures_of,
    plain,
    text_of,
)
from xdevice.tools.course.jobs import OUTCOMES, PREPARED

State = Literal["ok", "failed", "dead", "stopped", "not run"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a cell."""

    state: State = "not run"
    text: str = ""  # what it printed on stdout, and its value
    log: str = ""  # what it printed on stderr
    error: str = ""  # the last line of its traceback
    reason: str = ""  # why it failed, if that is known
    cause: int = 0  # the number of the earlier cell that is why; 0 if there is none
    traceback: str = ""
    seconds: float = 0.0
    pictures: list[Picture] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)

    @property
    def ran(self) -> bool:
        return self.state == "ok"

    @property
    def failed(self) -> bool:
        return self.state in ("failed", "dead")

    def as_json(self) -> dict[str, Any]:
        return {
            "state": self.state,
            "text": self.text,
            "error": self.error,
            "reason": self.reason,
            "cause": self.cause,
            "seconds": self.seconds,
            "pictures": len(self.pictures),
            "curves": [curve._asdict() for curve in self.curves],
        }


def read(folder: Path, files: Path) -> dict[int, Outcome]:
    """The outcome of each cell that has ended, by its number; `PREPARED` before the first cell.

    ``files`` is the tab's own copy of the folder above the chapter's, and is
    called ``..`` in the texts.
    """
    outcomes: dict[int, Outcome] = {}
    copy = json.dumps(str(files))[1:-1]
    for line in (folder / OUTCOMES).read_text(encoding="utf-8").splitlines():
        if not line.endswith("}"):  # the process was killed while it wrote
            continue
        entry = json.loads(line.replace(copy, ".."))
        outcomes[entry["cell"]] = _outcome(entry)
    return outcomes


def in_order(outcomes: Mapping[int, Outcome], number: int, reason: str) -> list[Outcome]:
    """The outcome of each of the cells.

    If the process ended before they did, the first that has not ended has
    failed for that reason.
    """
    prepared = outcomes.get(PREPARED, Outcome())
    if prepared.failed:
        failed = Outcome("failed", error=prepared.error, traceback=prepared.traceback)
        return [failed, *[Outcome()] * (number - 1)][:number]
    ended = [outcomes.get(cell, Outcome()) for cell in range(number)]
    if reason:
        for cell, outcome in enumerate(ended):
            if outcome.state in ("not run", "stopped"):
                ended[cell] = replace(outcome, state="dead", error=reason)
                break
    return ended


def _outcome(entry: Mapping[str, Any]) -> Outcome:
    outputs: Sequence[Output] = entry["outputs"]
    error, traceback = entry["error"], ""
    for output in outputs:
        if output["output_type"] == "error":
            error = f"{output['ename']}: {output['evalue']}".rstrip(": ")
            traceback = plain("\n".join(output["traceback"]))
    state: State = entry["state"]
    return Outcome(
        state=state,
        text=text_of(outputs),
        log="".join(plain(output["text"]) for output in outputs if output.get("name") == "stderr"),
        error=error,
        traceback=traceback,
        seconds=entry["seconds"],
        pictures=[picture for output in outputs for picture in pictures_of(output)],
        curves=[curve for output in outputs for curve in curves_of(output)],
    )
