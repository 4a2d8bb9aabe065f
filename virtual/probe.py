"""Finding out in a separate process what a framework's virtual GPUs can do: see `xdevice.tools.cli.probe`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from xdevice.tools.cli.probe import Answer, ask_each, ask_one, missing_in, missing_of
from xdevice.errors import NotSupportedError, XDeviceError
from xdevice.framework.adapters import Backend, entry_points_of
from xdevice.framework.choosing import use
from xdevice.framework.installing import is_installed
from xdevice.hardware.devices import count
from xdevice.hardware.diagnosis import build_of
from xdevice.hardware.virtual import GROUP, virtual_gpus
from xdevice.virtual import plugins
from xdevice.virtual.request import ENV


def try_each(
    names: Sequence[str], timeout: float, quiet: bool
) -> tuple[dict[str, Answer], int | None]:
    """Whether each framework can have virtual GPUs that stand in; nothing is compiled."""
    title = None if quiet else "trying virtual GPUs"
    return ask_each(names, abilities, timeout, title, without=ENV)


def check(names: Iterable[str]) -> None:
    """Raise an error if a framework cannot have the virtual GPUs that the environment asks for."""
    for name in filter(is_installed, names):
        # in another process: an import may change the environment, which a script inherits
        reason = ask_one(refusal, name).get("refused")
        if reason is not None:
            raise NotSupportedError(reason)


def abilities(backend: Backend) -> Answer:
    """What the framework's virtual GPUs can do: those that stand in, or else others.

    Nothing is compiled.
    """
    plugins.only_find()
    use(str(backend))
    answer: Answer = {
        "status": "ok",
        "works": False,
        "stands_in": False,
        "compiles": False,
        "reason": None,
    }
    for stand_in in (True, False):
        try:
            virtual_gpus(2, stand_in=stand_in)
        except XDeviceError as error:
            # the error of the plug-in says more
            cause = error.__cause__ if isinstance(error.__cause__, XDeviceError) else error
            answer["reason"] = answer["reason"] or str(cause)
            answer["compiles"] |= isinstance(cause, plugins.NotCompiledError)
        else:
            return {**answer, "works": True, "stands_in": stand_in}
    return answer


def refusal(backend: Backend) -> Answer:
    """Why the framework cannot have the virtual GPUs of the environment; empty if it can."""
    use(str(backend))
    try:
        count()
    except NotSupportedError as error:
        return {"refused": str(error)}
    return {}


def plugin(backend: Backend) -> Answer:
    """The path of the plug-in, which is compiled if it is missing, or the reason why there is none.

    Empty if the framework needs no plug-in.
    """
    folder = sys.argv[2]
    capability = backend.load("virtual")
    try:
        recipe = capability.recipe() if capability.has("recipe") else None
    except NotSupportedError as error:  # this version, or this system
        return {"error": str(error)}
    if recipe is None:
        return {}
    recipe = plugins.fitting(recipe)
    start = time.perf_counter()
    is_compiled = False

    def note_compilation() -> None:
        nonlocal is_compiled
        is_compiled = True

    path = None if folder else plugins.find(recipe)
    try:
        if path is None:
            target = Path(folder) if folder else plugins.writable(recipe, [])
            path = plugins.build(recipe, target, note_compilation)
    except NotSupportedError as error:
        return {"error": str(error), "path": None}
    seconds = time.perf_counter() - start
    return {"path": str(path), "seconds": seconds if is_compiled else None}


def missing_of_virtual_gpus(backend: Backend) -> list[Answer]:
    """The features of virtual GPUs that need private names which this version of the framework lacks."""
    package = entry_points_of(GROUP).get(str(backend))
    return [] if package is None else missing_in(backend, package)


def missing(backend: Backend) -> Answer:
    """The features that are missing, the adapter's and those of virtual GPUs, and the framework's version."""
    _ = backend.framework
    return {"version": build_of(backend)["version"], "missing": missing_of(backend)}
