"""Asking a framework what it has, in a process of its own: it may crash, hang or print.

The process that answers needs neither rich nor psutil, nor does `asked`, which waits for one answer.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from importlib import import_module
from typing import TYPE_CHECKING, Any

from xdevice.errors import NotSupportedError, XDeviceError
from xdevice.framework.adapters import (
    ORDER,
    Backend,
    available,
    find,
    install_command,
    is_installed,
    package_of,
    registered,
)
from xdevice.framework.choosing import backend
from xdevice.hardware.devices import devices_of, properties_of
from xdevice.hardware.diagnosis import build_of, diagnose, facts_of
from xdevice.hardware.virtual import are_provided, provider
from xdevice.kit.private_names import hint, missing_features
from xdevice.machine import usable_threads

if TYPE_CHECKING:
    from xdevice.launcher.children import Child

PYTHON = [sys.executable, *(["-P"] if sys.version_info >= (3, 11) else [])]
"""Python for a process of its own, where no module of the current folder is taken for a framework."""

Answer = dict[str, Any]


def probe_all(asked: Sequence[str], timeout: float, quiet: bool) -> tuple[list[Answer], int | None]:
    """A report on each backend asked for, or on all, and the signal that interrupted it, if one did."""
    names = [str(find(name)) for name in asked or registered()]
    title = None if quiet else "asking the frameworks"
    installed = [*filter(is_installed, names)]
    answers, interrupted = ask_each(installed, description, timeout, title)
    missing = {"installed": False, "status": "not installed"}
    rows = [
        answers.get(name) or {"name": name, **missing, "install": install_command(name)}
        for name in names
    ]
    return rows, interrupted


def frameworks(asked: Sequence[str]) -> list[str]:
    """The frameworks asked for, or all that are installed and have a device on this machine."""
    names = list(asked)
    if not names:
        names = available()
        others = [name for name in names if name not in ORDER]  # those in it have a CPU
        answers, _ = probe_all(others, 120.0, quiet=True) if others else ([], None)
        for row in answers:
            if row["status"] == "ok" and not row["devices"]:
                why = row["problem"]["reason"] if row["problem"] else "it has no device"
                print(f"xdevice: {row['name']} is left out: {why}", file=sys.stderr)
                names.remove(row["name"])
    return [str(backend(name)) for name in names] or [str(backend())]  # which says what to install


def ask_each(
    names: Sequence[str],
    ask: Callable[[Backend], Answer],
    timeout: float,
    title: str | None,
    without: str = "",
) -> tuple[dict[str, Answer], int | None]:
    """What each framework answers, in an environment ``without`` that variable, and the signal that interrupted it."""
    from xdevice.launcher.children import Child, run_all
    from xdevice.launcher.terminal import Progress

    env = {key: value for key, value in os.environ.items() if key != without}
    children = [Child(name, _command(ask, name), env) for name in names]
    with Progress(title or "", quiet=title is None) as progress:
        interrupted = run_all(children, max(1, (usable_threads() or 2) // 2), timeout, progress)
    return {child.name: _answer(child, timeout) for child in children}, interrupted


def _answer(child: Child, timeout: float) -> Answer:
    row: Answer = {"name": child.name, "installed": True}
    if child.status == "ok":
        with suppress(ValueError):  # a framework that ends the process by itself
            return {**row, **json.loads(child.output()[0])}
    silent = {"timed out": f"no answer after {timeout:g} s", "stopped": "interrupted"}
    if child.status in silent:
        return {**row, "status": child.status, "error": silent[child.status]}
    return {
        **row,
        "status": "crashed",
        "error": failure(child, " without an answer"),
        "exit_status": child.exit_status,
    }


def failure(child: Child, without: str = "") -> str:
    """How the child has ended, and the last line that it has printed on stderr."""
    from xdevice.launcher.terminal import exit_text, printable

    said = printable(child.output()[1].decode(errors="replace")).strip().splitlines()[-1:]
    return (
        exit_text(child.exit_status)
        + without
        + (f"; its last line: {said[0].strip()}" if said else "")
    )


def asked(ask: Callable[[Backend], Answer], name: str, *more: str, without: str = "") -> Answer:
    """What one framework answers, in an environment ``without`` that variable; ``error`` says that it has crashed."""
    env = {key: value for key, value in os.environ.items() if key != without}
    done = subprocess.run(
        _command(ask, name, *more), env=env, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8",
        errors="replace", check=False,
    )  # fmt: skip
    try:
        found: Answer = json.loads(done.stdout)
        return found
    except ValueError:
        said = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
        return {"error": f"fails: {said[0]}; xdevice doctor may know more", "path": None}


def _command(ask: Callable[[Backend], Answer], name: str, *more: str) -> list[str]:
    """What prints the answer of the framework of that name as JSON."""
    program = (
        f"from {ask.__module__} import {ask.__name__} as ask; "
        "from xdevice.cli.probe import answer; answer(ask)"
    )
    return [*PYTHON, "-c", program, name, *more]


def answer(ask: Callable[[Backend], Answer]) -> None:
    """Print what is answered of the framework in ``argv``, and nothing else on stdout; the process ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a framework prints belongs on stderr
    try:
        found = ask(find(sys.argv[1]))
    except XDeviceError as error:
        cause = error.__cause__
        found = {
            "status": "broken",
            "error": f"{type(cause).__name__}: {cause}" if cause else str(error),
        }
    json.dump(found, answers)
    answers.flush()
    os._exit(0)  # a framework may crash while the process ends: the answer is written


def description(backend: Backend) -> Answer:
    began = time.perf_counter()
    _ = backend.framework
    took = time.perf_counter() - began
    facts = facts_of(backend)
    problem = diagnose(facts)
    devices: list[Answer] = [{"device": str(device)} for device in devices_of(backend)]
    for row, device in zip(devices, devices_of(backend), strict=True):
        with suppress(NotSupportedError):
            row.update(properties_of(backend, device))
    return {
        "status": "ok",
        "version": build_of(backend)["version"]
        or str(getattr(backend.framework, "__version__", ""))
        or None,
        "compute": facts.compute,
        "toolkit": facts.toolkit,
        "import_seconds": round(took, 3),
        "devices": devices,
        "problem": asdict(problem) if problem else None,
        "missing": missing_of(backend),
    }


def missing_of(backend: Backend) -> list[Answer]:
    """The features that need private names which this version of the framework lacks, those of virtual GPUs too."""
    features = missing_in(backend, backend.module)
    of_virtual_gpus = provider().missing(backend) if are_provided() else []
    return features + [feature for feature in of_virtual_gpus if feature not in features]


def missing_in(backend: Backend, package: str) -> list[Answer]:
    """The missing features of what the package lists in its module ``private_names``, if it has that module."""
    module = f"{package}.private_names"
    try:
        listed: Any = import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        return []
    cure = hint(package_of(backend), listed.LAST_TRIED)
    return [{**feature._asdict(), "cure": cure} for feature in missing_features(listed.NAMES)]
