"""What a cell displays: its text, its pictures and its curves, from the outputs of Jupyter."""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Mapping, Sequence
from html.parser import HTMLParser
from typing import Any, NamedTuple, TypeAlias

from xdevice.tools.course.compare import TERMINAL
from xdevice.tools.course.kernel import CURVES, POINTS

Output: TypeAlias = Mapping[str, Any]
"""An output of a cell, as nbformat has it."""

PLOTLY = "application/vnd.plotly.v1+json"
IMAGES = ("image/svg+xml", "image/png", "image/jpeg", "image/gif")
TEXTS = ("text/plain", "text/markdown", "text/latex", "text/html")

# Texts that say no more than which form the value has.
_UNTOLD = re.compile(
    r"<IPython\.(?:core|lib)\.display\.\w+ (?:object|at 0x\w+)>|<[\w.]+Styler at .*>"
)
_PROGRESS_BAR = re.compile(r"[^\n]*\d+%\|.*\| [^\n]*\[[^\n]*\]")  # of tqdm, as it was at first
_WIDGET = "application/vnd.jupyter.widget-view+json"
_FIGURES = {  # by the beginning of their form
    "application/vnd.plotly": "Plotly",
    "application/vnd.bokehjs_exec": "Bokeh",
    "application/vnd.vega": "Vega",
}
_SPACES = re.compile(r"\s+")
_BLOCKS = frozenset({"p", "div", "tr", "table", "br", "li", "h1", "h2", "h3", "h4", "pre", "ul"})
_HIDDEN = frozenset({"script", "style", "title"})


class Picture(NamedTuple):
    mime_type: str
    data: str  # base64, or the text of an SVG


class Curve(NamedTuple):
    """A line of a figure: its label, and its points."""

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]


def text_of(outputs: Sequence[Output]) -> str:
    """What the cell printed, and the values that it displayed, except those of pictures."""
    parts: list[str] = []
    for output in outputs:
        if output.get("name") == "stdout":
            parts.append(output["text"])
        elif "data" in output and not pictures_of(output):
            parts.append(_text_of_value(output["data"]))
    return plain("\n".join(part.removesuffix("\n") for part in parts if part))


def pictures_of(output: Output) -> list[Picture]:
    data = output.get("data", {})
    for mime_type in IMAGES:
        if mime_type in data:
            return [Picture(mime_type, "".join(data[mime_type]))]
    return []


def curves_of(output: Output) -> list[Curve]:
    """The curves of a figure of matplotlib or Plotly."""
    data = output.get("data", {})
    curves = [
        Curve(curve["label"], tuple(curve["x"]), tuple(curve["y"]))
        for curve in data.get(CURVES, [])
    ]
    for trace in (data.get(PLOTLY) or {}).get("data", ()):
        curves += _curve_of_trace(trace)
    return curves


def plain(text: str) -> str:
    """The text without colours, and of a line that is overwritten the last state."""
    lines = TERMINAL.sub("", text).split("\n")
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines)


def _text_of_value(data: Mapping[str, Any]) -> str:
    """A value in the form that says most."""
    text = str(data.get("text/plain", ""))
    if _WIDGET in data and _PROGRESS_BAR.fullmatch(text.strip()):
        return ""
    for form in data:
        for beginning, library in _FIGURES.items():
            if form.startswith(beginning):
                return f"(figure of {library}, not shown)"
    if text and not _UNTOLD.fullmatch(text):
        return text
    for form in ("text/markdown", "text/latex"):
        if form in data:
            return str(data[form])
    return text_of_html(str(data.get("text/html", ""))) or text


def text_of_html(html: str) -> str:
    """The words of an HTML text, one line for each block."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    lines = (" ".join(line.split()) for line in "".join(reader.parts).splitlines())
    return "\n".join(filter(None, lines))


class _Reader(HTMLParser):
    """Collects the words that a browser would show."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._hidden += tag in _HIDDEN
        self.parts.append("\n" if tag in _BLOCKS else " ")

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in _HIDDEN and self._hidden > 0
        self.parts.append("\n" if tag in _BLOCKS else " ")

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.parts.append(_SPACES.sub(" ", data))


def _curve_of_trace(trace: Mapping[str, Any]) -> list[Curve]:
    """The curve of a trace of Plotly, if its heights are numbers."""
    heights = _numbers(trace.get("y"))
    if not heights:
        return []
    places = _numbers(trace.get("x"))
    if len(places) != len(heights):
        places = [float(number) for number in range(len(heights))]
    step = -(-len(heights) // POINTS)
    label = str(trace.get("name") or "")
    return [Curve(label, tuple(places[::step]), tuple(heights[::step]))]


def _numbers(values: Any) -> list[float]:
    """The numbers of an axis, which Plotly writes as a list or as packed bytes; else none."""
    if isinstance(values, Mapping):
        kinds = {
            "f8": "d",
            "f4": "f",
            "i4": "i",
            "u4": "I",
            "i2": "h",
            "u2": "H",
            "i1": "b",
            "u1": "B",
        }
        kind = kinds.get(str(values.get("dtype")))
        if kind is None or "shape" in values:
            return []
        packed = base64.b64decode(values["bdata"])
        values = [number for (number,) in struct.iter_unpack(f"<{kind}", packed)]
    if not isinstance(values, Sequence) or isinstance(values, str):
        return []
    if not all(isinstance(value, int | float) for value in values):
        return []
    return [float(f"{value:.6g}") for value in values]
