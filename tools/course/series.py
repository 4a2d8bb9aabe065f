"""The numbers that cells print and draw, and whether seeds explain that they differ.

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
from collections.abc import Sequence
from statistics import fmean, stdev, variance
from typing import NamedTuple

from xdevice.tools.course.compare import CLOSE, NUMBER, is_time_or_memory, unit_of, value_of
from xdevice.tools.course.displays import Curve

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
    values: tuple[float, ...]
    unit: float = 0.0  # of the last digit that is known; 0 of an integer
    is_curve: bool = False


class Judgement(NamedTuple):
    """Whether the numbers of two frameworks differ by more than their seeds explain."""

    t: float
    limit: float
    note: str  # the series with the largest t, in words

    @property
    def is_beyond_seeds(self) -> bool:
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
    scale = max(map(abs, curve.y), default=0.0)
    return Series(curve.label or "curve", curve.y, CLOSE * scale, is_curve=True)


def are_comparable(first: Sequence[Series], second: Sequence[Series]) -> bool:
    """Whether they have the same number of series, of the same lengths."""
    return [(series.is_curve, len(series.values)) for series in first] == [
        (series.is_curve, len(series.values)) for series in second
    ]


def judged(first: Sequence[Sequence[Series]], second: Sequence[Sequence[Series]]) -> Judgement:
    """The judgement on two frameworks, each with the series of its runs with several seeds."""
    seeds = min(len(first), len(second))
    count = len(first[0])
    worst = Judgement(0.0, _limit(2 * (seeds - 1), count), "")
    for number in range(count):
        a = [run[number] for run in first]
        b = [run[number] for run in second]
        varied = [runs for runs in (a, b) if not _is_fixed(runs)]
        samples = len(varied) or 2  # that have a spread; without any, nothing is explained
        t = _t(a, b, (seeds + 1) / seeds if samples == 1 else 2 / seeds, samples)
        limit = _limit(samples * (seeds - 1), count)
        if t / limit > worst.t / worst.limit:
            worst = Judgement(t, limit, _note(a, b, len(varied)))
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
    rounding = max(first[0].unit, second[0].unit) ** 2 / 12
    for point in points:
        a = [run.values[point] for run in first]
        b = [run.values[point] for run in second]
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
    values = [run.values[-1] for run in runs if run.values]
    if not values or not all(map(math.isfinite, values)):
        return ", ".join(f"{value:.4g}" for value in values)
    return f"{fmean(values):.4g} ± {stdev(values):.1g}"
