"""The child's side of `probe` and `virtual`: what a process of its own finds out about one framework.

It needs neither rich nor psutil.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from xdevice.errors import NotSupportedError, XDeviceError
from xdevice.framework.adapters import Backend, find
from xdevice.framework.choosing import use
from xdevice.hardware.devices import devices_of, properties_of
from xdevice.hardware.diagnosis import build_of, diagnose, facts_of
from xdevice.hardware.virtual import virtual_gpus
from xdevice.kit import plugins
from xdevice.kit.private_names import missing

PYTHON = [sys.executable, *(["-P"] if sys.version_info >= (3, 11) else [])]
"""Python for a process of its own, where no module of the current folder is taken for a framework."""


def command(answer: Callable[[Backend], dict[str, Any]], name: str, *more: str) -> list[str]:
    """What answers of the framework of that name, with a line of JSON on stdout."""
    code = f"from xdevice.cli import answering; answering.answer(answering.{answer.__name__})"
    return [*PYTHON, "-c", code, name, *more]


def answer(ask: Callable[[Backend], dict[str, Any]]) -> None:
    """Print what is answered of the framework in ``argv``, and nothing else on stdout; the process ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a framework prints belongs on stderr
    try:
        found = ask(find(sys.argv[1]))
    except XDeviceError as error:
        cause = error.__cause__
        found = {"status": "broken", "error": f"{type(cause).__name__}: {cause}" if cause else str(error)}
    json.dump(found, answers)
    answers.flush()
    os._exit(0)  # a framework may crash while the process ends: the answer is written


def description(backend: Backend) -> dict[str, Any]:
    began = time.perf_counter()
    _ = backend.framework
    took = time.perf_counter() - began
    facts = facts_of(backend)
    problem = diagnose(facts)
    return {
        "status": "ok",
        "version": build_of(backend)["version"] or str(getattr(backend.framework, "__version__", "")) or None,
        "compute": facts.compute,
        "toolkit": facts.toolkit,
        "import_seconds": round(took, 3),
        "devices": _devices(backend),
        "problem": asdict(problem) if problem else None,
        "missing": _missing_names(backend),
    }


def _devices(backend: Backend) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for device in devices_of(backend):
        try:
            found.append({"device": str(device), **properties_of(backend, device)})
        except NotSupportedError:
            found.append({"device": str(device)})
    return found


def _missing_names(backend: Backend) -> list[str]:
    """The private names that the adapter needs and this version of the framework lacks, and the last version tried."""
    home = f"{backend.module}.private_names"
    if find_spec(home) is None:
        return []
    listed = import_module(home)
    return [f"{line}; the last version tried is {listed.LAST_TRIED}" for line in missing(listed.NAMES)]


def virtual(backend: Backend) -> dict[str, Any]:
    """What its virtual GPUs can do here: those that stand in are tried, and where they cannot, ones that do not."""
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


def plugin(backend: Backend) -> dict[str, Any]:
    """Where the plug-in is, compiled if it is missing, or why there is none; empty where none is needed."""
    folder = sys.argv[2]
    capability = backend.open("virtual")
    try:
        recipe = capability.recipe() if capability.has("recipe") else None
    except NotSupportedError as error:  # this version, or this system
        return {"error": str(error)}
    if recipe is None:
        return {}
    began, compiled = time.perf_counter(), list[bool]()
    path = None if folder else plugins.find(recipe)
    try:
        if path is None:
            into = Path(folder) if folder else plugins.writable(recipe, [])
            path = plugins.build(recipe, into, lambda: compiled.append(True))
    except NotSupportedError as error:
        return {"error": str(error), "path": None}
    return {"path": str(path), "seconds": time.perf_counter() - began if compiled else None}
