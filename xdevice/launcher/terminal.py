"""What all commands share of the terminal: consoles, and texts made fit for them."""

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

PERIOD = 10.0  # seconds between two lines about a child that runs, where there is no terminal
_ENDLESS = 10_000  # columns, where there is no terminal: nothing is wrapped or cut
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_CONTROL = {i: 0x2400 + i for i in range(32) if chr(i) not in "\t\n"} | dict.fromkeys(
    range(128, 160), 0xFFFD
)
_CONTROL[127] = 0x2421
_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_STYLES = {"ok": "green", "waiting": "dim", "running": "cyan"}


def console(stderr: bool = False) -> Console:
    """A console that writes colours and wraps lines only where it is a terminal."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _ENDLESS
    return Console(
        file=stream,
        force_terminal=not width,
        width=width,
        highlight=False,
        markup=False,
        emoji=False,
    )


def write(*parts: RenderableType) -> None:
    """Print on stdout; without a terminal, without the blanks that fill up a table's last column."""
    out = console()
    with out.capture() as captured:
        for part in parts:
            out.print(part, crop=False)  # what is not to be wrapped is left to the terminal
    text = captured.get()
    if not out.is_terminal:
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


def printable(text: str) -> str:
    """The text as a terminal would leave it, and harmless to one: other control characters become visible signs."""
    text = _ESCAPES.sub("", text).replace("\r\n", "\n")
    lines = (line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return "\n".join(lines).translate(_CONTROL)


class Progress:
    """Each child's state and newest line of output on stderr: a live table on a terminal, else a line now and then."""

    def __init__(
        self, title: str, quiet: bool = False, newest: Callable[[Child], str] | None = None
    ) -> None:
        from rich.live import Live

        out = console(stderr=True)
        self._title, self._quiet, self._due = title, quiet, dict[str, float]()
        self._newest = newest or (
            lambda child: printable(child.newest.decode(errors="replace")).strip()
        )
        self._live = (
            Live(console=out, transient=True, auto_refresh=False) if out.is_terminal else None
        )
        self._next = 0.0

    def __enter__(self) -> Progress:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._live:
            self._live.stop()

    def __call__(self, children: Sequence[Child]) -> None:
        now = time.monotonic()
        if self._live and now >= self._next:
            self._next = now + 0.1
            self._live.update(self._states(children, int(now * 10)), refresh=True)
        for child in children if self._live is None and not self._quiet else ():
            if child.status != "waiting" and (
                child.ended or child.seconds >= self._due.get(child.name, PERIOD)
            ):
                self._say(child)

    def _say(self, child: Child) -> None:
        """One line when it ends, and one each period before."""
        if self._due.get(child.name) == math.inf:
            return
        self._due[child.name] = math.inf if child.ended else child.seconds + PERIOD
        newest = "" if child.ended else self._newest(child)
        said = f"{child.name} {ending(child)} ({duration(child.seconds)}){f': {newest}' if newest else ''}"
        print(f"{self._title}: {said}", file=sys.stderr, flush=True)

    def _states(self, children: Sequence[Child], frame: int) -> Group:
        states = Table.grid(padding=(0, 2), expand=True)
        for _ in range(4):
            states.add_column(no_wrap=True)
        states.add_column(
            no_wrap=True, overflow="ellipsis", ratio=1
        )  # what is left of the terminal's width
        for child in children:
            sign = {"ok": "✓", "waiting": "·", "running": _SPINNER[frame % len(_SPINNER)]}.get(
                child.status, "✗"
            )
            style = _STYLES.get(child.status, "red")
            took = "" if child.status == "waiting" else f"{child.seconds:.1f} s"
            newest = Text(self._newest(child) if child.status == "running" else "", style="dim")
            states.add_row(
                f"{sign} {child.name}",
                ending(child),
                took,
                size(child.peak_memory),
                newest,
                style=style,
            )
        return Group(Text(self._title, style="bold", overflow="ellipsis", no_wrap=True), states)


def ending(child: Child) -> str:
    if child.status == "failed":
        return exit_text(child.exit_status)
    return {"flooded": "stopped: too much output"}.get(child.status, child.status)


def exit_text(status: int | None) -> str:
    """An exit status in words: ``exit 1``, ``killed by SIGSEGV``."""
    if status is None:
        return "never ran"
    return f"exit {status}" if status >= 0 else f"killed by {signal_name(status)}"


def signal_name(status: int | None) -> str | None:
    """The signal behind a negative exit status."""
    if status is None or status >= 0:
        return None
    return next(
        (each.name for each in signal.Signals if each == -status), f"signal {-status}"
    )  # a real-time signal
