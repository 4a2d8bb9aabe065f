"""A report in a notebook: a table in HTML, and a figure of matplotlib's."""

from html import escape
from typing import Any

from xdevice.errors import NotSupportedError
from xdevice.kit.units import size
from xdevice.tensors.transfers.contents import Contents
from xdevice.tensors.transfers.finding import time
from xdevice.tensors.transfers.formats import summary

_MOST = 20  # bars


def html(report: Contents) -> str:
    """A table without colours, so that it is read in a notebook's light and dark theme; below it what `str` adds."""
    heads = ("line", "copies", "", "bytes", "from → to", "what it is, and what to write", "estimate")
    rows = [
        (
            f"<b>{escape(each.where)}</b><br><code>{escape(each.source)}</code>",
            str(each.copies),
            escape(each.often),
            size(each.nbytes),
            f"{each.from_} → {each.to}",
            escape(each.what.rpartition(": ")[2]) + (f"<br><i>{escape(each.advice)}</i>" if each.advice else ""),
            time(each.estimate),
        )
        for each in report
    ]
    head = "".join(f"<th>{each}</th>" for each in heads)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if rows else ""
    return table + "".join(f"<p>{escape(line)}</p>" for line in summary(report))


def plot(report: Contents) -> Any:
    """A bar for each line, the longest on top."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise NotSupportedError("plot() needs matplotlib; pip install matplotlib") from error
    found = sorted(report, key=lambda each: -each.estimate)[:_MOST][::-1]
    figure = Figure(figsize=(9, 1.4 + 0.35 * len(found)), layout="constrained")
    axes: Any = figure.subplots()
    names = [f"{each.where}  {each.source[:48]}" for each in found]
    colours = ["#D55E00" if each.rule else "#999999" for each in found]  # Okabe and Ito's, with advice and without
    axes.barh(range(len(found)), [each.estimate * 1e3 for each in found], color=colours)
    axes.set_yticks(range(len(found)), names, family="monospace", fontsize=8)
    axes.set_xlabel(f"ms at {report.bus}, a stated bus")
    axes.set_title("Copies between devices: orange can be mended")
    return figure
