"""The live table of running children on a terminal."""

from collections.abc import Callable, Sequence

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from xdevice.tools.launcher.children import Child
from xdevice.tools.launcher.terminal import console
from xdevice.tools.launcher.texts import ending
from xdevice.units import size

_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_SIGNS = {"ok": "✓", "waiting": "·"}
_STYLES = {"ok": "green", "waiting": "dim", "running": "cyan"}


class LiveTable:
    """A row for each child; it disappears in the end."""

    def __init__(self, title: str, newest: Callable[[Child], str]) -> None:
        self._title = title
        self._newest = newest
        self._live = Live(console=console(stderr=True), transient=True, auto_refresh=False)
        self._live.start()

    def draw(self, children: Sequence[Child], frame: int) -> None:
        self._live.update(self._picture(children, frame), refresh=True)

    def stop(self) -> None:
        self._live.stop()

    def _picture(self, children: Sequence[Child], frame: int) -> Group:
        rows = Table.grid(padding=(0, 2), expand=True)
        for _ in range(4):
            rows.add_column(no_wrap=True)
        # The newest line takes the rest of the terminal's width.
        rows.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
        for child in children:
            sign = _SIGNS.get(child.status, "✗")
            newest = ""
            seconds = ""
            if child.status != "waiting":
                seconds = f"{child.seconds:.1f} s"
            if child.status == "running":
                sign = _SPINNER[frame % len(_SPINNER)]
                newest = self._newest(child)
            rows.add_row(
                f"{sign} {child.name}",
                ending(child),
                seconds,
                size(child.peak_memory),
                Text(newest, style="dim"),
                style=_STYLES.get(child.status, "red"),
            )
        return Group(Text(self._title, style="bold", overflow="ellipsis", no_wrap=True), rows)
