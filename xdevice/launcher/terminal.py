"""The terminal, for all commands: consoles, tables, progress, and texts that are safe to print."""

from __future__ import annotations

import json
import math
import re
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from xdevice.kit.units import duration, size
from xdevice.launcher.children import Child

PERIOD = 10.0  # seconds between two lines about a running child, without a terminal
_NO_WRAPPING = 10_000  # columns, without a terminal
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
# Visible signs for control characters: Unicode has pictures of those below 32
# and of 127.
_CONTROL_PICTURES = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n"}
_CONTROL_PICTURES[127] = 0x2421
_CONTROL_PICTURES |= dict.fromkeys(range(128, 160), 0xFFFD)
_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_SIGNS = {"ok": "✓", "waiting": "·"}
_STYLES = {"ok": "green", "waiting": "dim", "running": "cyan"}
_REFRESH = 0.1  # seconds between two pictures of the live table


def console(stderr: bool = False) -> Console:
    """A console that writes colours and wraps lines only if it is a terminal."""
    stream = sys.stderr if stderr else sys.stdout
    is_terminal = stream.isatty()
    width = None  # the terminal's
    if not is_terminal:
        width = _NO_WRAPPING
    return Console(
        file=stream,
        force_terminal=is_terminal,
        width=width,
        highlight=False,
        markup=False,
        emoji=False,
    )


def write(*parts: RenderableType) -> None:
    """Print on stdout; without a terminal, leave out the blanks that fill a table's last column."""
    stdout = console()
    with stdout.capture() as captured:
        for part in parts:
            stdout.print(part, crop=False)  # lines that are not wrapped are left to the terminal
    text = captured.get()
    if not stdout.is_terminal:
        text = "\n".join(line.rstrip() for line in text.split("\n"))
    sys.stdout.write(text)
    sys.stdout.flush()


def write_json(value: Any) -> None:
    print(json.dumps(value, indent=2))


def table(*headings: str, right: tuple[str, ...] = ()) -> Table:
    new = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for heading in headings:
        new.add_column(heading, justify="right" if heading in right else "left", overflow="fold")
    return new


def counted(number: int, noun: str) -> str:
    """The number with its noun: ``1 line``, ``2 lines``."""
    if number == 1:
        return f"1 {noun}"
    return f"{number} {noun}s"


def printable(text: str) -> str:
    """The text as a terminal shows it in the end, with signs for control characters."""
    text = _ESCAPES.sub("", text).replace("\r\n", "\n")
    lines = (line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return "\n".join(lines).translate(_CONTROL_PICTURES)


class Progress:
    """Each child's state and newest line of output on stderr.

    On a terminal this is a live table, otherwise a line for each child now and then.
    """

    def __init__(
        self, title: str, quiet: bool = False, newest: Callable[[Child], str] | None = None
    ) -> None:
        stderr = console(stderr=True)
        self._title = title
        self._quiet = quiet
        self._newest = newest or _newest_line
        self._due: dict[str, float] = {}  # seconds of each child at which its next line is due
        self._live: Live | None = None
        if stderr.is_terminal:
            from rich.live import Live

            self._live = Live(console=stderr, transient=True, auto_refresh=False)
        self._next_refresh = 0.0

    def __enter__(self) -> Progress:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._live:
            self._live.stop()

    def __call__(self, children: Sequence[Child]) -> None:
        if self._live is None:
            self._print_lines(children)
            return
        now = time.monotonic()
        if now >= self._next_refresh:
            self._next_refresh = now + _REFRESH
            self._live.update(self._table(children, frame=int(now / _REFRESH)), refresh=True)

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

    def _table(self, children: Sequence[Child], frame: int) -> Group:
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


def _newest_line(child: Child) -> str:
    return printable(child.newest.decode(errors="replace")).strip()


def ending(child: Child) -> str:
    """The child's state in words."""
    if child.status == "failed":
        return exit_text(child.exit_status)
    if child.status == "flooded":
        return "stopped: too much output"
    return child.status


def exit_text(status: int | None) -> str:
    """An exit status in words: ``exit 1``, ``killed by SIGSEGV``."""
    if status is None:
        return "never ran"
    if status < 0:
        return f"killed by {signal_name(status)}"
    return f"exit {status}"


def signal_name(status: int | None) -> str | None:
    """The signal behind a negative exit status."""
    if status is None or status >= 0:
        return None
    try:
        return signal.Signals(-status).name
    except ValueError:  # a real-time signal
        return f"signal {-status}"
