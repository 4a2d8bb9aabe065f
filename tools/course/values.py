"""What cells show as values: text, pictures, curves, numbers, truth values and devices.

What a printed tensor says of itself beside its numbers (shape, dtype, place) is
no value. Where it is counts only if both frameworks print it.

Each printed number is a series of its own; a curve is one series. Over n seeds
under each of two frameworks, a series has

    t = |difference of the means| / (pooled standard deviation · √(2/n)),

for a curve with the root mean squares over its points. Seeds explain the
difference unless t is above Student's quantile for 0.1 % per cell, divided
among its series: 8.6 with three seeds and one series.

If no seed changes the series of one framework, since its program sets a seed
or a key itself, the series is one draw, and has the other's spread:

    t = |difference of the means| / (standard deviation of the other · √(1 + 1/n)),

with the quantile for n - 1 degrees of freedom: 31.6 with three seeds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from html.parser import HTMLParser
from statistics import fmean, mean, stdev, variance
from typing import Any, NamedTuple, TypeAlias

from xdevice.device import Device
from xdevice.tools.course.kernel import CURVES, IMAGES
from xdevice.tools.course.texts import (
    CLOSE,
    NUMBER,
    TERMINAL,
    is_time_or_memory,
    largest_of,
    normalized,
    unit_of,
    value_of,
    with_devices_spelled_alike,
    with_dtypes_spelled_alike,
    without_framework_name,
)

Output: TypeAlias = Mapping[str, Any]
"""An output of a cell, as nbformat has it."""

# ---------------------------------------------------------- what Jupyter shows

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
    return without_terminal_codes("\n".join(part.removesuffix("\n") for part in parts if part))


def pictures_of(output: Output) -> list[Picture]:
    data = output.get("data", {})
    for mime_type in IMAGES:
        if mime_type in data:
            return [Picture(mime_type, "".join(data[mime_type]))]
    return []


def curves_of(output: Output) -> list[Curve]:
    """The curves of a figure of matplotlib."""
    return [
        Curve(curve["label"], tuple(curve["x"]), tuple(curve["y"]))
        for curve in output.get("data", {}).get(CURVES, [])
    ]


def without_terminal_codes(text: str) -> str:
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


# ------------------------------------------------------- what can be compared

_VALUE = r"""(?:'[^']*'|"[^"]*"|\[[^\]]*\]|\w*\([^()]*(?:\([^()]*\))?[^()]*\)|<[^>]*>|[\w.:]+)"""
_ABOUT_A_TENSOR = re.compile(
    rf",?\s*\b(?:shape|dtype|device|place|ctx|stop_gradient|requires_grad|grad_fn|trainable"
    rf"|weak_type|sharding|backend|layout|memory_kind)={_VALUE}"
    r"|\bpath=[\w/-]+"  # of a variable of Keras
    r"|<\w+ [\dx]* ?@[^>]*>|(?<=[\]\d.]) @\w+"  # of MXNet: <NDArray 2x3 @cpu(0)>, or @gpu(0)
    r"|(?<=<tf\.Variable) '[^']*'"  # its name
)
_DEVICE = re.compile(r"\b(cpu|gpu|tpu)_(\d+)\b")
_QUOTED_DEVICE = re.compile(r"""(['"])((?:cpu|gpu|tpu)_\d+)\1""")
_LISTED = 4  # truth values, or devices, that are listed
_ADDRESS = re.compile(r"\b0x_\d+\b")


class Values(NamedTuple):
    """What a cell prints, in a form in which frameworks can be compared."""

    text: str  # all of it, with devices, dtypes and the framework's name spelled alike
    series: list[Series]  # the numbers, and the curves that it draws
    booleans: list[str]
    devices: list[str]
    places: list[str]  # of the tensors that say where they are

    @property
    def are_none(self) -> bool:
        return not (self.series or self.booleans or self.devices)


def values_of(text: str, curves: Sequence[Curve], framework: str) -> Values:
    """What a cell has printed and drawn under the framework."""
    text = with_devices_spelled_alike(normalized(text), _as_word)
    text = _QUOTED_DEVICE.sub(r"\2", with_dtypes_spelled_alike(text))
    bare_text = _ADDRESS.sub("address", _ABOUT_A_TENSOR.sub("", text))
    attributes = " ".join(_ABOUT_A_TENSOR.findall(text))
    return Values(
        without_framework_name(text, framework),
        series_of(bare_text, curves),
        booleans=re.findall(r"\b(?:True|False)\b", bare_text),
        devices=_devices_in(bare_text),
        places=_devices_in(attributes),
    )


def why_not_comparable(first: Values, second: Values) -> str:
    """Why their numbers cannot be compared one by one; the empty text if they can be."""
    if bool(first.text) != bool(second.text):
        return "one prints nothing"
    if first.booleans != second.booleans:
        return _unlike("truth values", first.booleans, second.booleans)
    if first.devices != second.devices:
        return _unlike("devices", first.devices, second.devices)
    if not have_same_shape(first.series, second.series):
        return f"{len(first.series)} and {len(second.series)} numbers and curves"
    if first.places and second.places:
        # PyTorch does not print the place of a tensor on the CPU
        gpus = [[place for place in each.places if place != "cpu:0"] for each in (first, second)]
        if gpus[0] != gpus[1]:
            return _unlike("tensors on", first.places, second.places)
    return ""


def _as_word(device: Device) -> str:
    """The device as a word that has no number of its own."""
    return f"{device.kind}_{device.index}"


def _devices_in(text: str) -> list[str]:
    return [f"{kind}:{index}" for kind, index in _DEVICE.findall(text)]


def _unlike(noun: str, first: list[str], second: list[str]) -> str:
    return f"{noun} {_listed(first)} and {_listed(second)}"


def _listed(words: list[str]) -> str:
    if not words:
        return "none"
    return ", ".join([*words[:_LISTED], *["…"] * (len(words) > _LISTED)])


# ------------------------------------------------------------ numbers and seeds

# Student's quantile for a two-sided 0.1 %, by the degrees of freedom.
_QUANTILES = {
    1: 636.6,
    2: 31.60,
    3: 12.92,
    4: 8.610,
    5: 6.869,
    6: 5.959,
    7: 5.408,
    8: 5.041,
    10: 4.587,
    12: 4.318,
    14: 4.140,
    16: 4.015,
}
_NO_WORDS = re.compile(r"[^\w%.-]+")


class Series(NamedTuple):
    """A printed number, or the points of a curve."""

    name: str  # the words before the number, or the curve's label
    values: tuple[Decimal, ...]
    unit: Decimal = Decimal(0)  # of the last digit that is known; 0 of an integer
    is_curve: bool = False


class TTest(NamedTuple):
    """Whether the numbers of two frameworks differ by more than their seeds explain."""

    t: float
    limit: float
    note: str  # the series with the largest t, in words

    @property
    def is_significant(self) -> bool:
        return self.t > self.limit


def series_of(text: str, curves: Sequence[Curve]) -> list[Series]:
    """The numbers that a cell printed, and the curves that it drew."""
    numbers: list[Series] = []
    end = 0
    for match in NUMBER.finditer(text):
        name = text[end : match.start()].strip(" ,:=([")[-40:]
        end = match.end()
        if not is_time_or_memory(text, match.start(), end):
            numbers.append(Series(name, (value_of(match[0]),), unit_of(match[0])))
    return numbers + [_series_of_curve(curve) for curve in curves]


def _series_of_curve(curve: Curve) -> Series:
    heights = tuple(map(Decimal, curve.y))
    unit = CLOSE * largest_of(heights)
    return Series(curve.label or "curve", heights, unit, is_curve=True)


def have_same_shape(first: Sequence[Series], second: Sequence[Series]) -> bool:
    """Whether they have the same number of series, of the same lengths."""
    return [(series.is_curve, len(series.values)) for series in first] == [
        (series.is_curve, len(series.values)) for series in second
    ]


def t_test(first: Sequence[Sequence[Series]], second: Sequence[Sequence[Series]]) -> TTest:
    """The test on two frameworks, each with the series of its runs with several seeds."""
    seeds = min(len(first), len(second))
    count = len(first[0])
    worst = TTest(0.0, _limit(2 * (seeds - 1), count), "")
    for number in range(count):
        a = [run[number] for run in first]
        b = [run[number] for run in second]
        varied = [runs for runs in (a, b) if not _is_fixed(runs)]
        samples = len(varied) or 2  # that have a spread; without any, nothing is explained
        t = _t(a, b, (seeds + 1) / seeds if samples == 1 else 2 / seeds, samples)
        limit = _limit(samples * (seeds - 1), count)
        if t / limit > worst.t / worst.limit:
            worst = TTest(t, limit, _note(a, b, len(varied)))
    return worst


def _limit(freedom: int, count: int) -> float:
    return float(_QUANTILES[freedom] * count ** (1 / freedom))


def _is_fixed(runs: Sequence[Series]) -> bool:
    """Whether no seed changes the series."""
    return all(str(run.values) == str(runs[0].values) for run in runs)


def _t(
    first: Sequence[Series], second: Sequence[Series], variance_of_difference: float, samples: int
) -> float:
    """The statistic of one series; the variance is that of the means' difference, in variances."""
    points = range(len(first[0].values))
    distances: list[float] = []
    variances: list[float] = []
    unit = max(first[0].unit, second[0].unit)
    values = [value for run in (*first, *second) for value in run.values]
    largest = largest_of([unit, *values]) or 1  # of which all are parts that a float can square
    rounding = float(unit / largest) ** 2 / 12
    for point in points:
        a = [float(run.values[point] / largest) for run in first]
        b = [float(run.values[point] / largest) for run in second]
        if not all(map(math.isfinite, [*a, *b])):
            if list(map(str, a)) != list(map(str, b)):
                return math.inf
            continue
        distances.append((fmean(a) - fmean(b)) ** 2)
        variances.append((variance(a) + variance(b)) / samples + rounding)
    if not distances or not fmean(distances):
        return 0.0
    if not fmean(variances):
        return math.inf
    return math.sqrt(fmean(distances) / fmean(variances) / variance_of_difference)


def _note(first: Sequence[Series], second: Sequence[Series], varied: int) -> str:
    """The two series in words, and whether the seeds reach them."""
    name = _NO_WORDS.sub(" ", first[0].name).strip()
    words = f"{_in_words(first)} and {_in_words(second)}"
    if name:
        words = f"{name}: {words}"
    if varied == 0:
        return f"{words}, which no seed changes"
    if varied == 1:
        fixed = "the first" if _is_fixed(first) else "the second"
        return f"{words}; no seed changes {fixed}"
    return words


def _in_words(runs: Sequence[Series]) -> str:
    """The mean with the standard deviation; of a curve, at its last point."""
    values = [float(run.values[-1]) for run in runs if run.values]
    if not values or not all(map(math.isfinite, values)):
        return ", ".join(f"{value:.4g}" for value in values)
    return f"{mean(values):.4g} ± {stdev(values):.1g}"
