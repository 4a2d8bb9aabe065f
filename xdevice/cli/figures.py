"""The pictures of ``xdevice bench``: one for each experiment, fit for a slide."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

Answer = dict[str, Any]
Bar = tuple[int, dict[str, Any]]  # the framework's place, and the row of the result

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#999999")
"""Okabe and Ito's, which people with any kind of colour vision tell apart, on white and on black."""

DARK, LIGHT = "#1e1e1e", "#ffffff"
UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


def unit_of(seconds: float) -> tuple[float, str]:
    return next((unit for unit in UNITS if seconds >= unit[0]), UNITS[-1])


def plot(found: Sequence[Answer], file: Path, *, dark: bool = False) -> list[Path]:
    """Draw each experiment into a file of its own, in the format that the suffix names, and return the files.

    One experiment is drawn into the file itself, several into files with their names behind its stem.
    """
    import matplotlib

    panels = list(_panels(found))
    files = [file if len(panels) == 1 else file.with_stem(f"{file.stem}-{name}") for name, _, _ in panels]
    settings: Any = style(dark)  # whose names are Literals in matplotlib 3.11
    with matplotlib.rc_context(settings):
        for (_, heading, bars), each in zip(panels, files, strict=True):
            _figure(found, heading, bars).savefig(each, dpi=150)
    return files


def style(dark: bool) -> dict[str, Any]:
    ground, ink = (DARK, LIGHT) if dark else (LIGHT, DARK)
    inked = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    grounds = ("figure.facecolor", "axes.facecolor", "savefig.facecolor", "legend.facecolor")
    sides = {"axes.spines.top": False, "axes.spines.right": False, "legend.edgecolor": ink, "font.size": 11}
    return {**dict.fromkeys(inked, ink), **dict.fromkeys(grounds, ground), **sides, "svg.fonttype": "none"}


def _panels(found: Sequence[Answer]) -> Iterator[tuple[str, str, list[Bar]]]:
    """Each experiment that was timed: its name, its title and its bars."""
    bars: dict[tuple[str, str], list[Bar]] = {}
    busy = {each["name"] for framework in found for each in framework["experiments"] if each["busy"]}
    for place, framework in enumerate(found):
        for experiment in framework["experiments"]:
            heading = experiment["name"], experiment["title"]
            for row in experiment["rows"]:
                bars.setdefault(heading, []).append((place, row))
    for (name, title), of_it in bars.items():
        yield name, f"{name}: {title}" + ("\nThe machine was too busy for exact times" if name in busy else ""), of_it


def _figure(found: Sequence[Answer], heading: str, bars: Sequence[Bar]) -> Any:
    """Times with their spread on the left, speed-ups over the first line, which is the CPU, on the right."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    labels = list(dict.fromkeys(row["label"] for _, row in bars))
    frameworks = sorted({place for place, _ in bars})
    figure: Any = Figure(figsize=(12, 2.2 + 0.34 * len(labels) * max(len(frameworks), 2)), layout="constrained")
    figure.suptitle(heading)
    times, speeds = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
    unit, unit_name = unit_of(max(row["seconds_each"] for _, row in bars))
    ink = times.xaxis.label.get_color()
    height = 0.8 / len(frameworks)  # of a framework's bars: those of one label side by side, a gap to the next label's
    for place, row in bars:
        at = labels.index(row["label"]) - 0.4 + height * (frameworks.index(place) + 0.5)
        each, low, high = (row[f"seconds_{word}"] / unit for word in ("each", "low", "high"))
        ratio = row["ratio_to_cpu"]
        for axes, value, text, end in (
            (times, each, f"{each:.3g}", high),
            (speeds, ratio, f"{ratio:.2f} ×", max(ratio, 1)),  # beside the line at 1 too
        ):
            axes.barh(at, value, height * 0.9, color=_colour(place))
            axes.annotate(text, (end, at), (4, 0), textcoords="offset points", va="center", fontsize=9)
        times.errorbar(each, at, xerr=[[each - low], [high - each]], color=ink, capsize=2, linewidth=1)
    speeds.axvline(1, color=ink, linewidth=1, linestyle=":")
    for axes, label, margin in (
        (times, f"time each in {unit_name}: median and quartiles", 0.15),
        (speeds, "speed-up over the first line", 0.2),
    ):
        axes.set_xlabel(label)
        axes.margins(x=margin)
        axes.set_xlim(left=0)
    times.set_yticks(range(len(labels)), labels)
    times.invert_yaxis()
    names = [f"{found[place]['name']} {found[place]['version'] or ''}".strip() for place in frameworks]
    patches = [Patch(color=_colour(place), label=name) for place, name in zip(frameworks, names, strict=True)]
    figure.legend(handles=patches, loc="outside lower center", ncols=len(patches), frameon=False)
    return figure


def _colour(place: int) -> str:
    return COLOURS[place % len(COLOURS)]
