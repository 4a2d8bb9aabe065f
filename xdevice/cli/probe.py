"""Asking a framework for its version and devices, in a process of its own: it may crash, hang or print."""

import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from xdevice.cli import answering
from xdevice.framework.adapters import ORDER, Backend, available, find, install_command, is_installed, registered
from xdevice.framework.choosing import backend
from xdevice.kit.virtual_request import ENV
from xdevice.launcher.children import Child, run_all
from xdevice.launcher.terminal import Progress, exit_text, printable
from xdevice.machine import usable_threads

TIMEOUT = 120.0
"""Seconds that a framework may take to answer, if the user does not say."""

Answer = dict[str, Any]


def probe_all(asked: Sequence[str], timeout: float, quiet: bool) -> tuple[list[Answer], int | None]:
    """A report on each backend asked for, or on all, and the signal that interrupted it, if one did."""
    names = [str(find(name)) for name in asked or registered()]
    installed = [name for name in names if is_installed(name)]
    title = None if quiet else "asking the frameworks"
    answers, interrupted = _ask_each(installed, answering.description, timeout, title)
    missing = {"installed": False, "status": "not installed"}
    rows = [answers.get(name) or {"name": name, **missing, "install": install_command(name)} for name in names]
    return rows, interrupted


def try_virtual(names: Sequence[str], timeout: float, quiet: bool) -> tuple[dict[str, Answer], int | None]:
    """Whether each framework can have virtual GPUs here, and let them stand in for real ones; nothing is compiled."""
    return _ask_each(names, answering.virtual, timeout, None if quiet else "trying virtual GPUs")


def _ask_each(
    names: Sequence[str], ask: Callable[[Backend], Answer], timeout: float, title: str | None
) -> tuple[dict[str, Answer], int | None]:
    """What `answering` finds out about each framework, in a process of its own."""
    env = {key: value for key, value in os.environ.items() if ask is answering.description or key != ENV}
    children = [Child(name, answering.command(ask, name), env) for name in names]
    with Progress(title or "", quiet=title is None) as progress:
        interrupted = run_all(children, max(1, (usable_threads() or 2) // 2), timeout, progress)
    return {child.name: _answer(child, timeout) for child in children}, interrupted


def frameworks(asked: Sequence[str]) -> list[str]:
    """The frameworks asked for, or all that are installed and have a device on this machine."""
    names = asked or _with_a_device(available())
    return [str(backend(name)) for name in names] or [str(backend())]  # which says what to install


def _with_a_device(names: Sequence[str]) -> list[str]:
    """Those of the frameworks that have a device; for each of the others a line on stderr says why not."""
    others = [name for name in names if name not in ORDER]  # those in it have a CPU
    answers, _ = probe_all(others, TIMEOUT, quiet=True) if others else ([], None)
    without = {row["name"]: row["problem"] for row in answers if row["status"] == "ok" and not row["devices"]}
    for name, problem in without.items():
        print(f"xdevice: {name} is left out: {problem['reason'] if problem else 'it has no device'}", file=sys.stderr)
    return [name for name in names if name not in without]


def _answer(child: Child, timeout: float) -> Answer:
    """What the child has printed, or how it failed to."""
    row: Answer = {"name": child.name, "installed": True}
    if child.status == "ok":
        try:
            return {**row, **json.loads(child.output()[0])}
        except ValueError:  # a framework that ends the process by itself
            pass
    if child.status in ("timed out", "stopped"):
        error = f"no answer after {timeout:g} s" if child.status == "timed out" else "interrupted"
        return {**row, "status": child.status, "error": error}
    return {**row, "status": "crashed", "error": failure(child, " without an answer"), "exit_status": child.exit_status}


def failure(child: Child, without: str = "") -> str:
    """How the child has ended, and the last line that it has printed on stderr."""
    said = printable(child.output()[1].decode(errors="replace")).splitlines()
    lines = [line.strip() for line in said if line.strip()]
    return exit_text(child.exit_status) + without + (f"; its last line: {lines[-1]}" if lines else "")
