"""The HTML page of a chapter: its prose, and what each cell shows under each framework, side by side.

The page needs no other file: its pictures are inside it.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from xdevice.tools.course.compare import VERDICTS, Row
from xdevice.tools.course.read import Cell, Chapter, Prose, without_marks
from xdevice.tools.course.run import Outcome, TabRun
from xdevice.tools.course.values import Picture
from xdevice.units import duration

_STYLE = Path(__file__).with_name("page.css")


def page(chapter: Chapter, runs: Sequence[TabRun], rows: Sequence[Row], devices: str = "") -> str:
    """The page as text; ``devices`` says what stood for GPUs."""
    title = escape(chapter.title)
    parts = [
        "<!DOCTYPE html>",
        f'<html lang="en"><head><meta charset="utf-8"><title>{title}</title>',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<style>{_STYLE.read_text(encoding='utf-8')}</style></head><body>",
        f"<h1>{title}</h1>",
        *([f"<p>Run {escape(devices)}.</p>"] if devices else []),
        *_summary(runs, rows),
    ]
    tabs = {run.tab for run in runs}
    row_of_number = {row.number: row for row in rows}
    for part in chapter.parts:
        if isinstance(part, Cell):
            row = row_of_number.pop(part.row, None)  # at the first of its cells
            parts += _row(row) if row else []
        elif not part.tabs or part.tabs & tabs:
            parts.append(_prose(part, chapter.title))
    return "\n".join([*parts, "</body></html>", ""])


def _prose(prose: Prose, title: str) -> str:
    """The prose as HTML, without the chapter's title, which the page has already. HTML in it is text."""
    from markdown_it import MarkdownIt

    heading, _, rest = prose.text.partition("\n")
    text = rest if without_marks(heading.removeprefix("# ")) == title else prose.text
    html = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image").render(text)
    label = f"<h3>{escape(', '.join(sorted(prose.tabs)))}</h3>" if prose.tabs else ""
    return f'<div class="prose">{label}{html}</div>'


def _summary(runs: Sequence[TabRun], rows: Sequence[Row]) -> Iterator[str]:
    """The tabs, and how many rows have each verdict, with links to the first of them."""
    yield "<table><tr><th>tab</th><th>version</th><th>cells</th><th>failed</th><th>time</th></tr>"
    for run in runs:
        if run.seed == 0:
            failed = sum(outcome.failed for outcome in run.outcomes)
            numbers = f"<td>{len(run.cells)}</td><td>{failed}</td>"
            name = f"<td>{escape(run.tab)}</td><td>{escape(run.version)}</td>"
            yield f"<tr>{name}{numbers}<td>{duration(run.child.seconds)}</td></tr>"
    yield "</table><ul class='verdicts'>"
    counts = Counter(row.verdict for row in rows)
    for verdict, words in VERDICTS.items():
        if counts[verdict]:
            first = next(row.number for row in rows if row.verdict == verdict)
            link = f'<a href="#row-{first}">{counts[verdict]}</a>'
            yield f'<li class="{_css_class(verdict)}">{link} {escape(words)}</li>'
    yield "</ul>"


def _row(row: Row) -> Iterator[str]:
    verdict = escape(VERDICTS[row.verdict])
    note = f" <small>{escape(row.note)}</small>" if row.note else ""
    yield f'<section id="row-{row.number}" class="{_css_class(row.verdict)}">'
    yield f'<p class="verdict">{row.number + 1}. {verdict}{note}</p>'
    codes = {cell.code for cell in row.cells.values()}
    is_shared = len(codes) == 1
    if is_shared:
        yield _code(next(iter(codes)))
    yield '<div class="tabs">'
    for tab, cell in row.cells.items():
        yield from _tab(tab, cell, row.outcomes[tab], is_code_shown=not is_shared)
    yield "</div></section>"


def _tab(tab: str, cell: Cell, outcome: Outcome, is_code_shown: bool) -> Iterator[str]:
    yield f'<div class="tab"><h3>{escape(tab)}</h3>'
    if is_code_shown:
        yield _code(cell.code)
    if outcome.text:
        yield f"<pre>{escape(outcome.text)}</pre>"
    for picture in outcome.pictures:
        yield f'<img alt="{escape(_description(tab, outcome))}" src="{_data_url(picture)}">'
    if outcome.error:
        reason = f"\n{outcome.reason}" if outcome.reason else ""
        yield f'<pre class="error">{escape(outcome.error + reason)}</pre>'
    for name, text in (("traceback", outcome.traceback), ("stderr", outcome.log)):
        if text.strip():
            yield f"<details><summary>{name}</summary><pre>{escape(text)}</pre></details>"
    if outcome.state == "not run":
        yield "<p>not run</p>"
    if outcome.state == "stopped":
        yield "<p>stopped while it ran</p>"
    yield "</div>"


def _description(tab: str, outcome: Outcome) -> str:
    """What stands for a picture where it cannot be seen."""
    labels = ", ".join(curve.label for curve in outcome.curves if curve.label)
    if labels:
        return f"what the cell draws under {tab}: {labels}"
    return f"what the cell draws under {tab}"


def _code(code: str) -> str:
    return f'<pre class="code">{escape(code.rstrip())}</pre>'


def _data_url(picture: Picture) -> str:
    data = picture.data
    if picture.mime_type == "image/svg+xml":  # as an image, it cannot run scripts
        data = base64.b64encode(data.encode()).decode()
    return f"data:{picture.mime_type};base64,{''.join(data.split())}"


def _css_class(verdict: str) -> str:
    return verdict.replace(" ", "-")
