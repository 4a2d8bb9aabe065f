"""The results of ``xdevice bench`` as pictures for slides."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from xdevice.tools.cli.bench_tables import name_with_version, unit_of
from xdevice.tools.cli.probe import Answer

Axes: TypeAlias = Any  # those of matplotlib: its types are not strict
Figure: TypeAlias = Any

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#999999")
"""Okabe and Ito's colours: people with colour blindness tell them apart, on white and on black."""

BAR = 0.9  # the fraction of a bar's slot that is drawn


class Bar(NamedTuple):
    """A row of an experiment under one framework."""

    framework: int  # its index in the results
    row: Answer


class Panel(NamedTuple):
    """The bars of one experiment."""

    name: str
    heading: str
    bars: list[Bar]


def plot(results: Sequence[Answer], file: Path, *, dark: bool) -> Iterator[Path]:
    """Draw one picture for each experiment, and return the files.

    A single picture is ``file`` itself. Several have the experiment's name
    behind the file's stem.
    """
    import matplotlib

    panels = _panels(results)
    with matplotlib.rc_context(_settings(dark)):
        for panel in panels:
            picture = file
            if len(panels) > 1:
                picture = file.with_stem(f"{file.stem}-{panel.name}")
            _figure(results, panel).savefig(picture, dpi=150)
            yield picture


def _settings(dark: bool) -> dict[Any, Any]:  # matplotlib 3.11 has the keys as a Literal
    paper, ink = "#ffffff", "#1e1e1e"
    if dark:
        paper, ink = ink, paper
    return {
        "text.color": ink,
        "axes.labelcolor": ink,
        "axes.edgecolor": ink,
        "xtick.color": ink,
        "ytick.color": ink,
        "legend.edgecolor": ink,
        "figure.facecolor": paper,
        "axes.facecolor": paper,
        "savefig.facecolor": paper,
        "legend.facecolor": paper,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "font.size": 11,
        "svg.fonttype": "none",
    }


def _panels(results: Sequence[Answer]) -> list[Panel]:
    panels: dict[str, Panel] = {}
    busy_experiments: set[str] = set()
    for index, result in enumerate(results):
        for experiment in result["experiments"]:
            name = experiment["name"]
            if experiment["busy"]:
                busy_experiments.add(name)
            for row in experiment["rows"]:
                panel = panels.setdefault(name, Panel(name, f"{name}: {experiment['title']}", []))
                panel.bars.append(Bar(index, row))
    warning = "\nThe machine was too busy for exact times"
    return [
        panel._replace(heading=panel.heading + warning) if name in busy_experiments else panel
        for name, panel in panels.items()
    ]


def _figure(results: Sequence[Answer], panel: Panel) -> Figure:
    """Times with their spread on the left; speed-ups over the first line, the CPU, on the right."""
    from matplotlib import figure

    labels = list(dict.fromkeys(bar.row["label"] for bar in panel.bars))
    frameworks = sorted({bar.framework for bar in panel.bars})
    height = 2.2 + 0.34 * len(labels) * max(len(frameworks), 2)
    new_figure: Figure = figure.Figure(figsize=(12, height), layout="constrained")
    new_figure.suptitle(panel.heading)
    times, speeds = new_figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
    unit, unit_name = unit_of(max(bar.row["seconds_each"] for bar in panel.bars))
    # The bars of one label are side by side, with a gap before the next label's.
    slot = 0.8 / len(frameworks)
    for bar in panel.bars:
        y = labels.index(bar.row["label"]) - 0.4 + slot * (frameworks.index(bar.framework) + 0.5)
        _draw_time(times, y, slot, bar, unit)
        _draw_speed(speeds, y, slot, bar)
    speeds.axvline(1, color=_ink(speeds), linewidth=1, linestyle=":")
    times.set(
        xlabel=f"time each in {unit_name}: median and quartiles", xmargin=0.15, xlim=(0, None)
    )
    speeds.set(xlabel="speed-up over the first line", xmargin=0.2, xlim=(0, None))
    times.set_yticks(range(len(labels)), labels)
    times.invert_yaxis()
    _draw_legend(new_figure, results, frameworks)
    return new_figure


def _draw_time(axes: Axes, y: float, slot: float, bar: Bar, unit: float) -> None:
    median = bar.row["seconds_each"] / unit
    low = bar.row["seconds_low"] / unit
    high = bar.row["seconds_high"] / unit
    axes.barh(y, median, slot * BAR, color=_colour(bar.framework))
    _annotate(axes, f"{median:.3g}", high, y)
    spread = [[median - low], [high - median]]
    axes.errorbar(median, y, xerr=spread, color=_ink(axes), capsize=2, linewidth=1)


def _draw_speed(axes: Axes, y: float, slot: float, bar: Bar) -> None:
    ratio = bar.row["ratio_to_cpu"]
    if ratio is None:  # the machine was too busy
        return
    axes.barh(y, ratio, slot * BAR, color=_colour(bar.framework))
    # The text is also beside the line at 1.
    _annotate(axes, f"{ratio:.2f} ×", max(ratio, 1), y)


def _annotate(axes: Axes, text: str, x: float, y: float) -> None:
    axes.annotate(text, (x, y), (4, 0), textcoords="offset points", va="center", fontsize=9)


def _draw_legend(figure: Figure, results: Sequence[Answer], frameworks: Sequence[int]) -> None:
    from matplotlib.patches import Patch

    patches = [
        Patch(color=_colour(framework), label=name_with_version(results[framework]))
        for framework in frameworks
    ]
    figure.legend(handles=patches, loc="outside lower center", ncols=len(patches), frameon=False)


def _ink(axes: Axes) -> str:
    """The colour of the text, which is visible on the paper."""
    colour: str = axes.xaxis.label.get_color()
    return colour


def _colour(framework: int) -> str:
    return COLOURS[framework % len(COLOURS)]
