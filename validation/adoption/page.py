"""The tables of validation/adoption/README.md, from the figures of the runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[2] / "validation/adoption/README.md"
BEGIN, END = "<!-- figures -->\n", "<!-- end of figures -->\n"
HEAD = (
    "| project | lines removed | lines added | before | after | on virtual GPUs |\n"
    "| --- | ---: | ---: | --- | --- | --- |\n"
)


def in_words(figures: dict[str, Any]) -> str:
    """The counts that are not zero."""
    counts = [
        f"{figures[word]} {word}"
        for word in ("passed", "failed", "skipped", "xfailed")
        if figures.get(word)
    ]
    return ", ".join(counts) or "none"


def table(folder: Path) -> str:
    return HEAD + "".join(map(_row, sorted(folder.glob("*.json"))))


def _row(file: Path) -> str:
    figures = json.loads(file.read_text(encoding="utf-8"))
    lines = figures["lines"]
    runs = [
        in_words(figures[mode]) if mode in figures else "not run"
        for mode in ("before", "after", "virtual")
    ]
    cells = [figures["project"], str(lines["removed"]), str(lines["added"]), *runs]
    return f"| {' | '.join(cells)} |\n"


def write(folder: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{table(folder)}\n{END}{after}", encoding="utf-8")
