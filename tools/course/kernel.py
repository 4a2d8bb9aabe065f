"""What the kernel does before the first cell: seeds, the course's ``tab``, figures as numbers.

`runner` runs `prepare` in the kernel, as a cell that the chapter does not have.
"""

from __future__ import annotations

import os
import random
from importlib.util import find_spec
from typing import Any, TypeAlias

CURVES = "application/vnd.xdevice.curves+json"
"""The MIME type of the numbers that a figure of matplotlib shows."""

POINTS = 200  # of a curve that are shown_points; of a longer one, every second or third, and so on

Figure: TypeAlias = Any
Shell: TypeAlias = Any


class Tab:
    """The name ``tab`` in the cells of d2l-en: ``if tab.selected("pytorch"):``."""

    def __init__(self, framework: str) -> None:
        self._framework = framework

    def selected(self, *names: str | list[str]) -> bool:
        from xdevice.framework.installing import framework_named

        words: list[str] = []
        for name in names:
            words += [name] if isinstance(name, str) else name
        return self._framework in map(framework_named, words)

    def interact_select(self, *names: str | list[str]) -> None:
        """Choose the tabs, in a notebook that people use: nothing to do here."""


def prepare(framework: str, seed: int) -> None:
    """Set the seeds, let figures be shown as their numbers, too, and print the version.

    The framework is not imported, and its seed is set when the chapter imports it.
    """
    from IPython.core.getipython import get_ipython

    from xdevice.framework import at_import

    shell: Shell = get_ipython()
    shell.user_ns["tab"] = Tab(framework)
    bundles = shell.display_formatter.mimebundle_formatter
    bundles.for_type_by_name("matplotlib.figure", "Figure", _curves_of)
    _draw_inline(shell)
    _set_seeds(seed)
    if framework:
        print(_installed_version(framework))
        at_import.watch(lambda owner: _seed_framework(str(owner), framework, seed))


def _installed_version(framework: str) -> str:
    """The framework's version, without its import: the chapter may set variables before that."""
    from importlib import metadata

    try:
        return metadata.version(framework)
    except metadata.PackageNotFoundError:  # the distribution has another name
        distributions = metadata.packages_distributions().get(framework, [])
        return metadata.version(distributions[0]) if distributions else ""


def _draw_inline(shell: Shell) -> None:
    """Let ``%matplotlib notebook``, ``widget`` or ``qt`` draw as ``inline``: nobody can click."""
    enable = shell.enable_matplotlib
    shell.enable_matplotlib = lambda gui=None: enable("inline")


def _set_seeds(seed: int) -> None:
    """Set the seeds of Python and NumPy."""
    random.seed(seed)
    if find_spec("numpy"):
        import numpy as np

        np.random.seed(seed)


def _seed_framework(imported: str, framework: str, seed: int) -> None:
    """Set the seed of the chapter's framework, if it is the one that has been imported."""
    from xdevice.framework.choosing import using
    from xdevice.tensors.creation import seed as seed_framework

    if imported == framework:
        with using(framework):
            seed_framework(seed)


def _curves_of(figure: Figure, **_: object) -> dict[str, Any]:
    return {CURVES: curves_of(figure)}


def curves_of(figure: Figure) -> list[dict[str, Any]]:
    """The lines and bars of a figure, as numbers."""
    curves: list[dict[str, Any]] = []
    for number, axes in enumerate(figure.axes):
        for line in axes.get_lines():
            points = line.get_xydata().tolist()
            label = str(line.get_label())
            curves.append(_curve(number, label, points))
        for container in axes.containers:
            heights = [float(height) for height in getattr(container, "datavalues", ())]
            if heights:
                curves.append(_curve(number, "bars", [[i, y] for i, y in enumerate(heights)]))
    return curves


def _curve(axes: int, label: str, points: list[list[float]]) -> dict[str, Any]:
    step = -(-len(points) // POINTS) or 1
    shown_points = points[::step]
    if label.startswith("_"):  # matplotlib's own names, for lines without a label
        label = ""
    return {
        "axes": axes,
        "label": label,
        "x": [float(f"{x:.6g}") for x, _ in shown_points],
        "y": [float(f"{y:.6g}") for _, y in shown_points],
    }


def cell_that_prepares(seed: int) -> str:
    """The code of the cell that calls `prepare`."""
    framework = os.environ.get("XDEVICE_BACKEND", "")
    call = f"prepare({framework!r}, {seed})"
    return f"from xdevice.tools.course.kernel import prepare\n{call}\ndel prepare"
