"""The HTML page of a chapter, for readers, or with the verdicts for its authors.

What all tabs share is shown once; where they differ, the reader chooses a tab,
for the whole page. The page needs no script and no other file: its pictures and
formulas are inside it.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import groupby
from pathlib import Path

from xdevice.tools.course.compare import VERDICTS, Row
from xdevice.tools.course.prose import code_as_html, data_url, prose_as_html, styles_of_code
from xdevice.tools.course.read import Cell, Chapter, Prose
from xdevice.tools.course.run import Outcome, TabRun
from xdevice.tools.course.texts import difference
from xdevice.tools.course.values import Picture
from xdevice.units import duration

_STYLE = Path(__file__).with_name("page.css")
_TITLES = {
    "torch": "PyTorch",
    "tensorflow": "TensorFlow",
    "paddle": "PaddlePaddle",
    "mxnet": "MXNet",
    "jax": "JAX",
    "numpy": "NumPy",
}
_SHOWN_ONCE = ("same", "digits", "times", "memory")


def page(
    chapter: Chapter,
    runs: Sequence[TabRun],
    rows: Sequence[Row],
    devices: str = "",
    review: bool = False,
) -> str:
    """The page as text; ``devices`` says what stood for GPUs, ``review`` adds the verdicts."""
    first_runs = [run for run in runs if run.seed == 0]
    writer = _Writer(chapter, [run.tab for run in first_runs], review)
    body = "\n".join(writer.parts(rows))
    if "<h1" not in body:
        body = f"<h1>{escape(chapter.title)}</h1>\n{body}"
    under = ", ".join(f"{_title(run.tab)} {run.version}".strip() for run in first_runs)
    return "\n".join(
        [
            "<!DOCTYPE html>",
            f'<html><head><meta charset="utf-8"><title>{escape(chapter.title)}</title>',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<style>{_STYLE.read_text(encoding='utf-8')}",
            f"{styles_of_code()}\n{writer.rules()}</style></head>",
            f'<body class="{"review" if review else "reader"}">',
            *writer.choices(has_tabs='class="tabs"' in body),
            *(_summary(first_runs, rows) if review else ()),
            f"<main>\n{body}\n</main>",
            f"<footer>Run under {escape(under)}{escape(devices and f', {devices}')}.</footer>",
            "</body></html>",
            "",
        ]
    )


class _Writer:
    """The parts of a page whose tabs are known."""

    def __init__(self, chapter: Chapter, tabs: Sequence[str], review: bool) -> None:
        self._chapter = chapter
        self._tabs = tabs
        self._review = review
        proses = [part for part in chapter.parts if isinstance(part, Prose)]
        htmls = prose_as_html([prose.text for prose in proses], chapter.path.parent)
        self._html = {id(prose): html for prose, html in zip(proses, htmls, strict=True)}

    def choices(self, has_tabs: bool) -> Iterator[str]:
        """What the reader can choose: the tab, and whether verdicts are shown."""
        if has_tabs:
            yield "<fieldset><legend>Code and outputs of</legend>"
            for number, tab in enumerate(self._tabs):
                checked = " checked" if number == 0 else ""
                yield f'<label><input type="radio" name="tab" id="tab-{tab}"{checked}> {_title(tab)}</label>'
            yield "</fieldset>"
        if self._review:
            yield '<label class="toggle"><input type="checkbox" id="verdicts" checked> verdicts</label>'

    def rules(self) -> str:
        """The rules that show the tab that is chosen; what has no such tab is hidden."""
        if len(self._tabs) < 2:
            return ""
        rules: list[str] = []
        for tab in self._tabs:
            chosen = f"body:has(#tab-{tab}:checked)"
            rules += [
                f"{chosen} .panel:not(.{tab}), {chosen} .tabs:not(:has(> .{tab})) {{ display: none }}",
                f"{chosen} label[for=tab-{tab}] {{ color: inherit; border-color: currentColor }}",
            ]
        return "@media screen {\n" + "\n".join(rules) + "\n}"

    def parts(self, rows: Sequence[Row]) -> Iterator[str]:
        row_of_number = {row.number: row for row in rows}
        pieces = groupby(
            self._chapter.parts, lambda part: isinstance(part, Prose) and bool(part.tabs)
        )
        for is_for_tabs, parts in pieces:
            if is_for_tabs:
                yield self._prose_for_tabs([part for part in parts if isinstance(part, Prose)])
                continue
            for part in parts:
                if isinstance(part, Prose):
                    yield self._prose(part)
                elif row := row_of_number.pop(part.row, None):  # at the first of its cells
                    yield self._row(row)

    def _prose(self, prose: Prose) -> str:
        return f'<div class="prose">{self._html[id(prose)]}</div>'

    def _prose_for_tabs(self, parts: Sequence[Prose]) -> str:
        panels: dict[str, str] = {}
        for tab in self._tabs:
            if found := [self._prose(prose) for prose in parts if tab in prose.tabs]:
                panels[tab] = "".join(found)
        return self._panels(panels)

    def _row(self, row: Row) -> str:
        """The code, then what it prints, then what it draws; each once if all tabs have the same."""
        tabs = list(row.cells)
        has_one_code = len({cell.code.strip() for cell in row.cells.values()}) == 1
        has_one_output = _agree([row.outcomes[tab] for tab in tabs])
        if len(tabs) < len(self._tabs):  # others do not have this cell
            has_one_code = has_one_output = False
        code = {
            tab: self._as_tagged("input", cell, code_as_html(cell.code))
            for tab, cell in row.cells.items()
        }
        output = {
            tab: self._as_tagged("output", row.cells[tab], _output(outcome))
            for tab, outcome in row.outcomes.items()
        }
        parts = [code[tabs[0]]] if has_one_code else []
        parts.append(
            self._panels(
                {
                    tab: code[tab] * (not has_one_code) + output[tab] * (not has_one_output)
                    for tab in tabs
                }
            )
        )
        parts += [output[tabs[0]]] if has_one_output else []
        pictures = _pictures(row.outcomes)
        parts.append(self._as_tagged("output", row.cells[tabs[0]], pictures))
        body = f'<div class="cell">{"".join(parts)}</div>'
        verdict = _verdict(row) if self._review else ""
        return f'<section id="row-{row.number}">{body}{verdict}</section>'

    def _as_tagged(self, part: str, cell: Cell, html: str) -> str:
        """The HTML as Jupyter Book's tags, such as ``hide-input``, let readers see it."""
        tags = {tag.replace("_", "-") for tag in cell.tags}
        if self._review or not html:
            return html
        if tags & {f"remove-{part}", "remove-cell"}:
            return ""
        if tags & {f"hide-{part}", "hide-cell"}:
            return f"<details><summary>{part}</summary>{html}</details>"
        return html

    def _panels(self, panels: Mapping[str, str]) -> str:
        """What differs between tabs, with labels that choose one."""
        if not any(panels.values()):
            return ""
        if len(self._tabs) < 2:
            return "".join(panels.values())
        labels = "".join(f'<label for="tab-{tab}">{_title(tab)}</label>' for tab in panels)
        shown = "".join(
            f'<div class="panel {tab}"><h6>{_title(tab)}</h6>{html}</div>'
            for tab, html in panels.items()
        )
        return f'<div class="tabs"><div class="labels">{labels}</div>{shown}</div>'


def _agree(outcomes: Sequence[Outcome]) -> bool:
    """Whether readers need one of the outputs only: they differ in times and last digits at most."""
    shown = [f"{outcome.state}\n{outcome.text}\n{outcome.error}" for outcome in outcomes]
    return all(difference(text, shown[0]).cause in _SHOWN_ONCE for text in shown)


def _output(outcome: Outcome) -> str:
    parts: list[str] = []
    if outcome.text.strip():
        parts.append(f'<pre class="output">{escape(outcome.text)}</pre>')
    if outcome.error:
        reason = f"\n{outcome.reason}" if outcome.reason else ""
        parts.append(f'<pre class="output error">{escape(outcome.error + reason)}</pre>')
    if outcome.state in ("not run", "stopped"):
        words = "not run" if outcome.state == "not run" else "stopped while it ran"
        parts.append(f'<p class="output">({words})</p>')
    return "".join(parts)


def _pictures(outcomes: Mapping[str, Outcome]) -> str:
    """The pictures of all tabs, beside one another; once if all tabs draw the same."""
    figures: list[str] = []
    if len({(outcome.pictures, outcome.curves) for outcome in outcomes.values()}) == 1:
        outcomes = dict(list(outcomes.items())[:1])
    for tab, outcome in outcomes.items():
        for picture in outcome.pictures:
            alt = escape(_description(tab, outcome))
            caption = f"<figcaption>{_title(tab)}</figcaption>" if len(outcomes) > 1 else ""
            figures.append(f'<figure><img alt="{alt}" src="{_source(picture)}">{caption}</figure>')
    return f'<div class="pictures">{"".join(figures)}</div>' if figures else ""


def _description(tab: str, outcome: Outcome) -> str:
    """What stands for a picture where it cannot be seen."""
    labels = ", ".join(curve.label for curve in outcome.curves if curve.label)
    return f"what the cell draws under {_title(tab)}{labels and f': {labels}'}"


def _source(picture: Picture) -> str:
    if picture.mime_type == "image/svg+xml":  # as an image, it cannot run scripts
        return data_url(picture.mime_type, picture.data.encode())
    return data_url(picture.mime_type, base64.b64decode(picture.data))


def _title(tab: str) -> str:
    return _TITLES.get(tab, escape(tab))


# --------------------------------------------------------------- for authors


def _summary(runs: Sequence[TabRun], rows: Sequence[Row]) -> Iterator[str]:
    """The tabs, and how many rows have each verdict, with links to the first of them."""
    yield '<div class="summary"><table>'
    yield "<tr><th>tab</th><th>version</th><th>cells</th><th>failed</th><th>time</th></tr>"
    for run in runs:
        failed = sum(outcome.failed for outcome in run.outcomes)
        numbers = f"<td>{len(run.cells)}</td><td>{failed}</td>"
        name = f"<td>{escape(run.tab)}</td><td>{escape(run.version)}</td>"
        yield f"<tr>{name}{numbers}<td>{duration(run.child.seconds)}</td></tr>"
    yield "</table><ul>"
    counts = Counter(row.verdict for row in rows)
    for verdict, words in VERDICTS.items():
        if counts[verdict]:
            first = next(row.number for row in rows if row.verdict == verdict)
            link = f'<a href="#row-{first}">{counts[verdict]}</a>'
            yield f'<li class="{_css_class(verdict)}">{link} {escape(words)}</li>'
    yield "</ul></div>"


def _verdict(row: Row) -> str:
    """What is said of a row, and what its readers are not shown."""
    hidden = [
        f"<details><summary>{name} of {_title(tab)}</summary><pre>{escape(text)}</pre></details>"
        for tab, outcome in row.outcomes.items()
        for name, text in (("traceback", outcome.traceback), ("stderr", outcome.log))
        if text.strip()
    ]
    words = f"<strong>{row.number + 1}. {escape(VERDICTS[row.verdict])}</strong>"
    note = f"<p>{escape(row.note)}</p>" if row.note else ""
    return f'<aside class="{_css_class(row.verdict)}">{words}{note}{"".join(hidden)}</aside>'


def _css_class(verdict: str) -> str:
    return verdict.replace(" ", "-")
