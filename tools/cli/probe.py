"""Asking a framework what it has, in a process of its own: it may crash, hang or print.

The process that answers needs neither rich nor psutil. Nor does `ask_one`,
which waits for one answer.
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
from typing import TYPE_CHECKING, Any, TypeAlias

from xdevice.errors import NotSupportedError, XDeviceError
from xdevice.framework.adapters import Backend, find, registered
from xdevice.framework.installing import install_command, is_installed, package_of
from xdevice.hardware.devices import devices_under, properties_of
from xdevice.hardware.diagnosis import build_of, diagnose, facts_of
from xdevice.hardware.virtual import are_provided, provider
from xdevice.backends.kit.private_names import hint, missing_features
from xdevice.machine import usable_threads

if TYPE_CHECKING:
    from xdevice.device import Device
    from xdevice.tools.launcher.children import Child

PYTHON = [sys.executable, *(["-P"] if sys.version_info >= (3, 11) else [])]
"""Python for a new process, which takes no module of the current folder for a framework."""

Answer: TypeAlias = dict[str, Any]
"""What a process tells of its framework: an object of JSON."""

Question: TypeAlias = Callable[[Backend], Answer]
"""A function of a module: the process imports it by its name, and calls it."""


def probe_all(
    selection: Sequence[str], timeout: float, quiet: bool
) -> tuple[list[Answer], int | None]:
    """A report on each selected backend, or on all, and the signal that interrupted it, if any."""
    names = [str(find(name)) for name in selection or registered()]
    title = None if quiet else "asking the frameworks"
    installed = [name for name in names if is_installed(name)]
    answers, interrupted = ask_each(installed, description, timeout, title)
    reports = [answers.get(name) or _not_installed(name) for name in names]
    return reports, interrupted


def _not_installed(name: str) -> Answer:
    return {
        "name": name,
        "installed": False,
        "status": "not installed",
        "install": install_command(name),
    }


def ask_each(
    names: Sequence[str],
    question: Question,
    timeout: float,
    title: str | None,
    without: str = "",
) -> tuple[dict[str, Answer], int | None]:
    """Each framework's answer, and the signal that interrupted the processes, if one did.

    The processes have the environment of this one, ``without`` that variable.
    """
    from xdevice.tools.launcher.children import Child, run_all
    from xdevice.tools.launcher.progress import Progress

    environment = _environment(without)
    children = [Child(name, _command(question, name), environment) for name in names]
    at_once = max(1, (usable_threads() or 2) // 2)
    with Progress(title or "", quiet=title is None) as progress:
        interrupted = run_all(children, at_once, timeout, progress)
    return {child.name: _answer(child, timeout) for child in children}, interrupted


def _environment(without: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != without}


def _answer(child: Child, timeout: float) -> Answer:
    answer: Answer = {"name": child.name, "installed": True}
    if child.status == "timed out":
        return {**answer, "status": "timed out", "error": f"no answer after {timeout:g} s"}
    if child.status == "stopped":
        return {**answer, "status": "stopped", "error": "interrupted"}
    if child.status == "ok":
        with suppress(ValueError):  # no JSON: the framework itself has ended the process
            return {**answer, **json.loads(child.output()[0])}
    return {
        **answer,
        "status": "crashed",
        "error": failure(child, " without an answer"),
        "exit_status": child.exit_status,
    }


def failure(child: Child, without: str = "") -> str:
    """How the child has ended, and the last line that it has printed on stderr."""
    from xdevice.tools.launcher.texts import exit_text, printable

    text = exit_text(child.exit_status) + without
    lines = printable(child.output()[1].decode(errors="replace")).strip().splitlines()
    if lines:
        text += f"; its last line: {lines[-1].strip()}"
    return text


def ask_one(question: Question, name: str, *arguments: str, without: str = "") -> Answer:
    """The framework's answer, or an ``error`` that says that its process has crashed.

    The process has the environment of this one, ``without`` that variable.
    """
    process = subprocess.run(
        _command(question, name, *arguments),
        env=_environment(without),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    try:
        answer: Answer = json.loads(process.stdout)
    except ValueError:
        lines = process.stderr.strip().splitlines() or [f"exit status {process.returncode}"]
        return {"error": f"fails: {lines[-1]}; xdevice doctor may know more", "path": None}
    return answer


def _command(question: Question, name: str, *arguments: str) -> list[str]:
    """The command that prints the framework's answer to the question as JSON."""
    program = (
        f"from {question.__module__} import {question.__name__} as question; "
        "from xdevice.tools.cli.probe import answer; answer(question)"
    )
    return [*PYTHON, "-c", program, name, *arguments]


def answer(question: Question) -> None:
    """Print the answer of the framework in ``argv``, and nothing else on stdout, and exit."""
    stdout = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the framework prints goes to stderr
    try:
        result = question(find(sys.argv[1]))
    except XDeviceError as error:
        message = str(error)
        cause = error.__cause__
        if cause:
            message = f"{type(cause).__name__}: {cause}"
        result = {"status": "broken", "error": message}
    json.dump(result, stdout)
    stdout.flush()
    os._exit(0)  # without the interpreter's cleanup, in which a framework may crash


def description(backend: Backend) -> Answer:
    """What `xdevice info` and `xdevice doctor` show of the framework."""
    began = time.perf_counter()
    framework = backend.framework
    import_seconds = time.perf_counter() - began
    facts = facts_of(backend)
    problem = diagnose(facts)
    version = build_of(backend)["version"] or str(getattr(framework, "__version__", ""))
    return {
        "status": "ok",
        "version": version or None,
        "compute": facts.compute,
        "toolkit": facts.toolkit,
        "import_seconds": round(import_seconds, 3),
        "devices": [_about(backend, device) for device in devices_under(backend)],
        "problem": asdict(problem) if problem else None,
        "missing": missing_of(backend),
    }


def _about(backend: Backend, device: Device) -> Answer:
    properties: Answer = {"device": str(device)}
    with suppress(NotSupportedError):
        properties.update(properties_of(backend, device))
    return properties


def missing_of(backend: Backend) -> list[Answer]:
    """The features that need private names which this version of the framework lacks.

    The features of virtual GPUs are among them.
    """
    features = missing_in(backend, backend.module)
    if are_provided():
        features += [feature for feature in provider().missing(backend) if feature not in features]
    return features


def missing_in(backend: Backend, package: str) -> list[Answer]:
    """The missing features by the private names in the package's module ``private_names``.

    There are none if the package does not have the module.
    """
    module_name = f"{package}.private_names"
    try:
        module: Any = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name != module_name:
            raise
        return []
    cure = hint(package_of(backend), module.LAST_TRIED)
    return [{**feature._asdict(), "cure": cure} for feature in missing_features(module.NAMES)]
