"""What came of each cell of a tab: its text, its error, its pictures and curves."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from xdevice.course.jobs import OUTCOMES, PREPARED
from xdevice.course.kernel import CURVES

State = Literal["ok", "failed", "dead", "not run"]
Output: TypeAlias = Mapping[str, Any]
"""An output of a cell, as nbformat has it."""

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_IMAGES = ("image/svg+xml", "image/png", "image/jpeg")


class Picture(NamedTuple):
    mime_type: str
    data: str  # base64, or the text of an SVG


class Curve(NamedTuple):
    """A line of a figure: its label, and its points."""

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a cell."""

    state: State = "not run"
    text: str = ""  # what it printed on stdout, and its value
    log: str = ""  # what it printed on stderr
    error: str = ""  # the last line of its traceback
    reason: str = ""  # why it failed, if that is known
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
            "seconds": self.seconds,
            "pictures": len(self.pictures),
            "curves": [curve._asdict() for curve in self.curves],
        }


def read(folder: Path) -> dict[int, Outcome]:
    """The outcome of each cell that has ended, by its number; `PREPARED` before the first cell."""
    outcomes: dict[int, Outcome] = {}
    for line in (folder / OUTCOMES).read_text(encoding="utf-8").splitlines():
        if not line.endswith("}"):  # the process was killed while it wrote
            continue
        entry = json.loads(line)
        outcomes[entry["cell"]] = _outcome(entry)
    return outcomes


def in_order(outcomes: Mapping[int, Outcome], number: int, reason: str) -> list[Outcome]:
    """The outcome of each of the cells.

    If the process ended before they did, the first that is missing has failed
    for that reason.
    """
    prepared = outcomes.get(PREPARED, Outcome())
    if prepared.failed:
        failed = Outcome("failed", error=prepared.error, traceback=prepared.traceback)
        return [failed, *[Outcome()] * (number - 1)][:number]
    ended = [outcomes.get(cell, Outcome()) for cell in range(number)]
    if reason:
        for cell, outcome in enumerate(ended):
            if outcome.state == "not run":
                ended[cell] = Outcome("dead", error=reason)
                break
    return ended


def _outcome(entry: Mapping[str, Any]) -> Outcome:
    outputs: Sequence[Output] = entry["outputs"]
    error, traceback = entry["error"], ""
    for output in outputs:
        if output["output_type"] == "error":
            error = f"{output['ename']}: {output['evalue']}".rstrip(": ")
            traceback = _plain("\n".join(output["traceback"]))
    state: State = entry["state"]
    return Outcome(
        state=state,
        text=_text(outputs),
        log="".join(_plain(output["text"]) for output in outputs if output.get("name") == "stderr"),
        error=error,
        traceback=traceback,
        seconds=entry["seconds"],
        pictures=[picture for output in outputs for picture in _pictures(output)],
        curves=[curve for output in outputs for curve in _curves(output)],
    )


def _text(outputs: Sequence[Output]) -> str:
    """What the cell printed, and the values that it displayed, except those of pictures."""
    parts: list[str] = []
    for output in outputs:
        if output.get("name") == "stdout":
            parts.append(output["text"])
        data = output.get("data", {})
        if "text/plain" in data and not _pictures(output):
            parts.append(data["text/plain"])
    return _plain("\n".join(part.removesuffix("\n") for part in parts))


def _pictures(output: Output) -> list[Picture]:
    data = output.get("data", {})
    for mime_type in _IMAGES:
        if mime_type in data:
            return [Picture(mime_type, "".join(data[mime_type]))]
    return []


def _curves(output: Output) -> list[Curve]:
    curves = output.get("data", {}).get(CURVES, [])
    return [Curve(curve["label"], tuple(curve["x"]), tuple(curve["y"])) for curve in curves]


def _plain(text: str) -> str:
    """The text without colours, and of a line that is overwritten the last state."""
    lines = _COLOURS.sub("", text).split("\n")
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines)
