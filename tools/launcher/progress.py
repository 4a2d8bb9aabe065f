"""Progress of children on stderr: lines, or on a terminal a live table."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from xdevice.tools.launcher.children import Child
from xdevice.tools.launcher.texts import ending, printable
from xdevice.units import duration

if TYPE_CHECKING:
    from xdevice.tools.launcher.live_table import LiveTable

PERIOD = 10.0  # seconds between two lines about a running child, without a terminal
_REFRESH = 0.1  # seconds between two pictures of the live table


class Progress:
    """Each child's state and newest line of output on stderr.

    On a terminal this is a live table, otherwise a line for each child now and
    then. rich, which draws the table, is imported for its first picture: the
    children run already, and those that end before need no picture.
    """

    def __init__(
        self, title: str, quiet: bool = False, newest: Callable[[Child], str] | None = None
    ) -> None:
        self._title = title
        self._quiet = quiet
        self._newest = newest or _newest_line
        self._due: dict[str, float] = {}  # seconds of each child at which its next line is due
        self._live_table: LiveTable | None = None
        self._next_picture = math.inf
        if sys.stderr.isatty():
            self._next_picture = time.monotonic() + _REFRESH

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._live_table:
            self._live_table.stop()

    def __call__(self, children: Sequence[Child]) -> None:
        if self._next_picture == math.inf:
            self._print_lines(children)
            return
        now = time.monotonic()
        if now >= self._next_picture:
            self._next_picture = now + _REFRESH
            self._draw(children, frame=int(now / _REFRESH))

    def _draw(self, children: Sequence[Child], frame: int) -> None:
        if self._live_table is None:
            from xdevice.tools.launcher.live_table import LiveTable

            self._live_table = LiveTable(self._title, self._newest)
        self._live_table.draw(children, frame)

    def _print_lines(self, children: Sequence[Child]) -> None:
        """A line when a child ends, and one each period before."""
        if self._quiet:
            return
        for child in children:
            due = self._due.get(child.name, PERIOD)
            was_reported_ended = due == math.inf
            if child.status == "waiting" or was_reported_ended:
                continue
            if child.ended:
                self._due[child.name] = math.inf
                self._print_line(child)
            elif child.seconds >= due:
                self._due[child.name] = child.seconds + PERIOD
                self._print_line(child)

    def _print_line(self, child: Child) -> None:
        text = f"{self._title}: {child.name} {ending(child)} ({duration(child.seconds)})"
        if not child.ended:
            newest = self._newest(child)
            if newest:
                text += f": {newest}"
        print(text, file=sys.stderr, flush=True)


def _newest_line(child: Child) -> str:
    return printable(child.newest.decode(errors="replace")).strip()
