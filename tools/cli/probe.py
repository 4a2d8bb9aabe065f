"""Asking a framework what it has, in a process of its own: it may crash, hang or print.

Neither the process that asks nor the one that answers needs rich or psutil.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

from xdevice.backends.kit.private_names import hint, missing_features
from xdevice.errors import NotSupportedError, XDeviceError
from xdevice.framework.adapters import Backend, find, registered
from xdevice.framework.choosing import use
from xdevice.framework.installing import install_command, is_installed, package_of
from xdevice.framework.registry import entry_points_of
from xdevice.hardware.devices import devices_under
from xdevice.hardware.diagnosis import build_of, diagnose, facts_of
from xdevice.hardware.questions import count, properties_of
from xdevice.hardware.virtual import GROUP
from xdevice.machine import usable_threads
from xdevice.tools.launcher.texts import exit_text, printable
from xdevice.units import duration
from xdevice.virtual.request import of_environment

if TYPE_CHECKING:
    from xdevice.device import Device

PYTHON = [sys.executable, *(["-P"] if sys.version_info >= (3, 11) else [])]
"""Python for a new process, which takes no module of the current folder for a framework."""

Answer: TypeAlias = dict[str, Any]
"""What a process tells of its framework: an object of JSON."""

Question: TypeAlias = Callable[[Backend], Answer]
"""A function of a module: the process imports it by its name, and calls it."""


def probe_all(selection: Sequence[str], timeout: float, quiet: bool) -> list[Answer]:
    """A report on each selected backend, or on all."""
    names = [str(find(name)) for name in selection or registered()]
    title = None if quiet else "asking the frameworks"
    installed = [name for name in names if is_installed(name)]
    answers = ask_each(installed, description, timeout, title)
    return [answers.get(name) or _not_installed(name) for name in names]


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
) -> dict[str, Answer]:
    """Each framework's answer. With a title, a line on stderr says when each has answered.

    The processes have the environment of this one, ``without`` that variable.
    """
    environment = _environment(without)
    processes: list[subprocess.Popen[bytes]] = []

    def ask(name: str) -> Answer:
        began = time.perf_counter()
        process = subprocess.Popen(
            _command(question, name),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        processes.append(process)
        with process:
            answer = {"name": name, "installed": True, **_answer(process, timeout)}
        if title is not None:
            seconds = duration(time.perf_counter() - began)
            print(f"{title}: {name} {answer['status']} ({seconds})", file=sys.stderr, flush=True)
        return answer

    with ThreadPoolExecutor(max(1, (usable_threads() or 2) // 2)) as pool:
        try:
            return dict(zip(names, pool.map(ask, names), strict=True))
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in processes:
                process.kill()
            raise


def _environment(without: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != without}


def _answer(process: subprocess.Popen[bytes], timeout: float) -> Answer:
    """What the process answers, or how it failed."""
    try:
        stdout, stderr = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        return {"status": "timed out", "error": f"no answer after {timeout:g} s"}
    status = process.returncode
    if status == 0:
        with suppress(ValueError):  # no JSON: the framework itself has ended the process
            answer: Answer = json.loads(stdout)
            return answer
    error = failure(status, stderr, " without an answer")
    return {"status": "crashed", "error": error, "exit_status": status}


def failure(status: int | None, stderr: bytes, without: str = "") -> str:
    """How a process has ended, and the last line that it has printed on stderr."""
    text = exit_text(status) + without
    lines = printable(stderr.decode(errors="replace")).strip().splitlines()
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
    features = _missing_in(backend, backend.module)
    package = entry_points_of(GROUP).get(str(backend))
    if package is not None:
        features += [each for each in _missing_in(backend, package) if each not in features]
    return features


def _missing_in(backend: Backend, package: str) -> list[Answer]:
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


def check_virtual_gpus(names: Iterable[str]) -> None:
    """Raise an error if a framework cannot have the virtual GPUs that the environment asks for."""
    request = of_environment()
    if request.memory is None and not request.races:
        return  # the framework itself raises other errors, before anything is computed
    for name in filter(is_installed, names):
        # in another process: an import may change the environment, which a script inherits
        reason = ask_one(refusal, name).get("refused")
        if reason is not None:
            raise NotSupportedError(reason)


def refusal(backend: Backend) -> Answer:
    """Why the framework cannot have the virtual GPUs of the environment; empty if it can."""
    use(str(backend))
    try:
        count()
    except NotSupportedError as error:
        return {"refused": str(error)}
    return {}
