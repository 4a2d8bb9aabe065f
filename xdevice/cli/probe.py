"""Asking a framework for its version and devices, in a process of its own: it may crash, hang or print."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from xdevice.framework.adapters import Backend
from xdevice.launcher.children import Child

TIMEOUT = 120.0
"""Seconds that a framework may take to answer, if the user does not say."""


def probe_all(asked: Sequence[str], timeout: float, quiet: bool) -> tuple[list[dict[str, Any]], int | None]:
    """A report on each backend asked for, or on all, and the signal that interrupted it, if one did."""
    from xdevice.framework.adapters import find, is_installed, registered

    names = [str(find(name)) for name in asked or registered()]
    installed = [name for name in names if is_installed(name)]
    answers, interrupted = _ask_each(installed, "main", timeout, None if quiet else "asking the frameworks")
    return [answers.get(name) or _missing(name) for name in names], interrupted


def try_virtual(names: Sequence[str], timeout: float, quiet: bool) -> tuple[dict[str, dict[str, Any]], int | None]:
    """Whether each framework can have virtual GPUs here, and let them stand in for real ones; nothing is compiled."""
    return _ask_each(names, "main_virtual", timeout, None if quiet else "trying virtual GPUs")


def _ask_each(
    names: Sequence[str], function: str, timeout: float, title: str | None
) -> tuple[dict[str, dict[str, Any]], int | None]:
    """What that function here, the child's side, answers of each framework in a process of its own."""
    from xdevice.kit.virtual_request import ENV
    from xdevice.launcher.children import Child, run_all
    from xdevice.launcher.terminal import Progress
    from xdevice.machine import usable_threads

    env = {key: value for key, value in os.environ.items() if function == "main" or key != ENV}
    safe = ["-P"] if sys.version_info >= (3, 11) else []  # no module of the current folder is a framework
    code = f"from xdevice.cli.probe import {function} as main; main()"
    children = [Child(name, [sys.executable, *safe, "-c", code, name], env) for name in names]
    with Progress(title or "", quiet=title is None) as progress:
        interrupted = run_all(children, max(1, (usable_threads() or 2) // 2), timeout, progress)
    return {child.name: _answer(child, timeout) for child in children}, interrupted


def frameworks(asked: Sequence[str]) -> list[str]:
    """The frameworks asked for, or all that are installed and have a device on this machine."""
    from xdevice.framework.adapters import available
    from xdevice.framework.choosing import backend

    names = asked or _with_a_device(available())
    return [str(backend(name)) for name in names] or [str(backend())]  # which says what to install


def _with_a_device(names: Sequence[str]) -> list[str]:
    """Those of the frameworks that have a device; for each of the others a line on stderr says why not."""
    from xdevice.framework.adapters import ORDER

    others = [name for name in names if name not in ORDER]  # those in it have a CPU
    answers, _ = probe_all(others, TIMEOUT, quiet=True) if others else ([], None)
    without = {row["name"]: row["problem"] for row in answers if row["status"] == "ok" and not row["devices"]}
    for name, problem in without.items():
        print(f"xdevice: {name} is left out: {problem['reason'] if problem else 'it has no device'}", file=sys.stderr)
    return [name for name in names if name not in without]


def main() -> None:
    """The child's side: print what the framework named in ``argv`` is, as one line of JSON."""
    from xdevice.framework.adapters import find

    print_alone(lambda: _ask(find(sys.argv[1])))


def main_virtual() -> None:
    """The same, of what its virtual GPUs can do here."""
    from xdevice.framework.adapters import find

    print_alone(lambda: _try_virtual(find(sys.argv[1])))


def print_alone(ask: Callable[[], dict[str, Any]]) -> None:
    """Print what is answered as JSON, and nothing else on stdout; the process ends."""
    from xdevice.errors import XDeviceError

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a framework prints belongs on stderr
    try:
        found = ask()
    except XDeviceError as error:
        cause = error.__cause__
        found = {"status": "broken", "error": f"{type(cause).__name__}: {cause}" if cause else str(error)}
    json.dump(found, answers)
    answers.flush()
    os._exit(0)  # a framework may crash while the process ends: the answer is written


def _ask(backend: Backend) -> dict[str, Any]:
    from xdevice.errors import NotSupportedError
    from xdevice.hardware.diagnosis import diagnose, facts_of

    began = time.perf_counter()
    _ = backend.framework
    took = time.perf_counter() - began
    facts = facts_of(backend)
    problem = diagnose(facts)
    try:
        version: str | None = backend.hardware.build()["version"]
    except NotSupportedError:
        version = str(getattr(backend.framework, "__version__", "")) or None
    return {
        "status": "ok",
        "version": version,
        "compute": facts.compute,
        "toolkit": facts.toolkit,
        "import_seconds": round(took, 3),
        "devices": _devices(backend),
        "problem": problem.as_dict() if problem else None,
        "missing": _missing_names(backend),
    }


def _missing_names(backend: Backend) -> list[str]:
    """The private names that the adapter needs and this version of the framework lacks, and the last version tried."""
    from importlib import import_module
    from importlib.util import find_spec

    from xdevice.kit.private_names import missing

    home = f"{backend.module}.private_names"
    if find_spec(home) is None:
        return []
    listed = import_module(home)
    return [f"{line}; the last version tried is {listed.LAST_TRIED}" for line in missing(listed.NAMES)]


def _try_virtual(backend: Backend) -> dict[str, Any]:
    """Virtual GPUs that stand in are tried, and where they cannot, ones that do not."""
    from xdevice.errors import XDeviceError
    from xdevice.framework.choosing import use
    from xdevice.hardware.virtual import virtual_gpus
    from xdevice.kit import plugins

    plugins.only_find()
    use(str(backend))
    found: dict[str, Any] = {"status": "ok", "works": False, "stands_in": False, "compiles": False, "reason": None}
    for stand_in in (True, False):
        try:
            virtual_gpus(2, stand_in=stand_in)
        except XDeviceError as error:
            reason = error.__cause__ if isinstance(error.__cause__, XDeviceError) else error  # the plug-in's own
            found["reason"] = found["reason"] or str(reason)
            found["compiles"] |= isinstance(reason, plugins.NotCompiledError)
        else:
            return {**found, "works": True, "stands_in": stand_in}
    return found


def _devices(backend: Backend) -> list[dict[str, Any]]:
    from xdevice.device import Device
    from xdevice.errors import NotSupportedError
    from xdevice.hardware.devices import properties_of

    found: list[dict[str, Any]] = []
    for kind in backend.hardware.kinds():
        for i in range(backend.hardware.count(kind)):
            try:
                known = dict(properties_of(backend, Device(kind, i)))
            except NotSupportedError:
                known = {}
            found.append({"device": f"{kind}:{i}", **known})
    return found


def _answer(child: Child, timeout: float) -> dict[str, Any]:
    """What the child has printed, or how it failed to."""
    from xdevice.launcher.terminal import exit_text

    stdout, stderr, _ = child.output()
    row: dict[str, Any] = {"name": child.name, "installed": True}
    if child.status == "ok":
        try:
            return {**row, **json.loads(stdout)}
        except ValueError:  # a framework that ends the process by itself
            pass
    if child.status in ("timed out", "stopped"):
        error = f"no answer after {timeout:g} s" if child.status == "timed out" else "interrupted"
        return {**row, "status": child.status, "error": error}
    words = [line.strip() for line in stderr.decode(errors="replace").splitlines() if line.strip()]
    error = f"{exit_text(child.exit_status)} without an answer" + (f"; its last line: {words[-1]}" if words else "")
    return {**row, "status": "crashed", "error": error, "exit_status": child.exit_status}


def _missing(name: str) -> dict[str, Any]:
    from xdevice.framework.adapters import install_command

    return {"name": name, "installed": False, "status": "not installed", "install": install_command(name)}
