"""What rich prints, for all commands: consoles and tables. Importing rich takes 30 ms."""

import sys

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table

_NO_WRAPPING = 10_000  # columns, without a terminal


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


def table(*headings: str, right: tuple[str, ...] = ()) -> Table:
    new = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for heading in headings:
        new.add_column(heading, justify="right" if heading in right else "left", overflow="fold")
    return new
