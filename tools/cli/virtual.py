"""``xdevice virtual``: virtual GPUs for every Python of an environment, and compiled plug-ins."""

import argparse
import os
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from xdevice.errors import ArgumentError, NotSupportedError
from xdevice.framework.adapters import Backend, find
from xdevice.framework.installing import is_installed
from xdevice.framework.registry import available, not_installed
from xdevice.hardware.diagnosis import build_of
from xdevice.hardware.virtual import ENV
from xdevice.machine import usable_threads
from xdevice.tools.cli.options import ALL_INSTALLED, add_backends
from xdevice.tools.cli.parser import Parser, one_of
from xdevice.tools.cli.probe import Answer, ask_one, missing_of
from xdevice.virtual import plugins

NAME = "xdevice-virtual-gpus.pth"
LINE = (
    f"import os; os.environ.get({ENV!r}) and __import__('importlib.util').util.find_spec('xdevice') "
    "and __import__('xdevice')\n"
)
"""The line that Python executes when it starts.

Without the variable, or without xdevice, it does nothing.
"""

_APPLIED = f"every Python of this environment applies {ENV} at its start"


def add_options(parser: Parser) -> None:
    parser.epilog = """\
example:
  xdevice virtual build --backend torch,paddle --to plugins
  xdevice virtual install

build compiles the missing plug-ins, and prints where each is. install lets
every Python of this environment apply XDEVICE_VIRTUAL_GPUS at its start, by a
file in site-packages, and uninstall removes the file. status shows both.

Exit status: 0; 1 if a plug-in cannot be compiled; 2 for an error in the
command line."""
    actions = ("build", "install", "uninstall", "status")
    parser.add_argument("action", **one_of(actions), metavar="|".join(actions), help="what to do")
    add_backends(parser, f"build, status: {ALL_INSTALLED}")
    folder = "build: compile into FOLDER, for XDEVICE_PLUGINS"
    parser.add_argument("--to", type=Path, metavar="FOLDER", help=folder)


def main(options: argparse.Namespace) -> int:
    if options.to is not None and options.action != "build":
        raise ArgumentError("--to goes with xdevice virtual build")
    file = Path(sysconfig.get_path("purelib")) / NAME
    if options.action in ("install", "uninstall"):
        if options.backend:
            raise ArgumentError("--backend goes with xdevice virtual build or status")
        _change(file, options.action)
        return 0
    frameworks = _installed(options.backend)
    if options.action == "status":
        _show_status(file, frameworks)
        return 0
    return _build(frameworks, options.to, are_named=bool(options.backend))


def _installed(names: list[str]) -> list[str]:
    """These frameworks, which must be installed, or all that are."""
    frameworks = [str(find(name)) for name in names]
    missing = [name for name in frameworks if not is_installed(name)]
    if missing:
        raise not_installed(missing[0])
    return frameworks or available()


def _show_status(file: Path, names: list[str]) -> None:
    if file.exists():
        print(f"installed: {file}; {_APPLIED}")
    else:
        programs = "programs that import xdevice, by xdevice run, and by their children"
        print(f"not installed: {ENV} is applied by {programs}")
    print(f"{ENV}={os.environ[ENV]}" if ENV in os.environ else f"{ENV} is not set")
    _show_missing(names)


def _change(file: Path, action: str) -> None:
    """Install or remove the file that Python executes at its start."""
    try:
        if action == "install":
            file.write_text(LINE, encoding="ascii")
            print(f"{file} is installed; {_APPLIED}")
        elif file.exists():
            file.unlink()
            print(f"{file} is removed")
        else:
            print(f"{file} is not there; nothing was installed")
    except OSError as error:
        run = "xdevice emulate PROGRAM"
        cure = f"use an environment of your own, or start programs with {run}"
        raise NotSupportedError(f"{file} cannot be written ({error.strerror}); {cure}") from error


def _show_missing(names: list[str]) -> None:
    """Print a line for each feature that the installed versions of the frameworks lack."""

    def ask(name: str) -> dict[str, Any]:
        return ask_one(features, name, without=ENV)

    for name, answer in _answers(names, ask):
        if "error" in answer:
            print(f"{name}: {answer['error']}")
        for missing in answer.get("missing", ()):
            if missing["essential"]:
                effect = "virtual GPUs do not work"
            else:
                effect = f"{missing['feature']}: not supported"
            print(f"{name} {answer['version']}: {effect}: {missing['reason']}; {missing['cure']}")


def _answers(
    names: list[str], ask: Callable[[str], dict[str, Any]]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each framework's answer. A few of them are asked at the same time."""
    with ThreadPoolExecutor(max(1, (usable_threads() or 2) // 2)) as pool:
        yield from zip(names, pool.map(ask, names), strict=True)


def _build(frameworks: list[str], to: str | None, are_named: bool) -> int:
    """Compile the frameworks' plug-ins; 1 if one of them could not be compiled, else 0."""
    folder = _prepared(Path(to)) if to is not None else None
    without_plug_in: list[str] = []
    has_failed = False

    def ask(name: str) -> dict[str, Any]:
        return ask_one(plug_in, name, str(folder or ""), without=ENV)

    with _progress(frameworks):
        for name, answer in _answers(frameworks, ask):
            if not answer:
                without_plug_in.append(name)
            elif "error" in answer:
                print(f"{name}: {answer['error']}", flush=True)
                # without a path, this framework has no virtual GPUs; a failure if it was named
                has_failed = has_failed or are_named or "path" in answer
            else:
                print(f"{name}: {answer['path']} {_origin(answer['seconds'])}", flush=True)
    if without_plug_in:
        print(f"no plug-in is needed for {', '.join(without_plug_in)}")
    if folder is not None and not has_failed:
        print(f"set {plugins.ENV}={folder} where they are to be used")
    return int(has_failed)


def _origin(seconds: float | None) -> str:
    return "is there already" if seconds is None else f"was compiled in {seconds:.1f} s"


def _prepared(folder: Path) -> Path:
    folder = folder.absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        reason = plugins.unsafe(folder)
    except OSError as error:
        raise ArgumentError(
            f"--to {folder} cannot be made ({error.strerror}); name another folder"
        ) from error
    if reason is not None:
        cure = f"name another folder, or chmod go-w {folder}"
        raise ArgumentError(f"--to {folder} would not be read, {reason}; {cure}")
    return folder


def _progress(names: list[str]) -> AbstractContextManager[Any]:
    """Prints to stderr what is being done, with a moving line on a terminal if rich is installed."""
    title = f"looking for the plug-ins of {', '.join(names)}, and compiling what is missing"
    if sys.stderr.isatty():
        try:
            from xdevice.tools.launcher.terminal import console

            return console(stderr=True).status(title)
        except ModuleNotFoundError:  # rich
            pass
    print(title, file=sys.stderr, flush=True)
    return nullcontext()


def plug_in(backend: Backend) -> Answer:
    """The path of the plug-in, which is compiled if it is missing, or the reason why there is none.

    Empty if the framework needs no plug-in.
    """
    folder = sys.argv[2]
    capability = backend.load_unprepared("virtual")
    try:
        recipe = capability.recipe() if capability.has("recipe") else None
    except NotSupportedError as error:  # this version, or this system
        return {"error": str(error)}
    if recipe is None:
        return {}
    start = time.perf_counter()
    is_compiled = False

    def note_compilation(_seconds: int) -> None:
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


def features(backend: Backend) -> Answer:
    """The features that the framework's version lacks, and that version."""
    _ = backend.framework
    return {"version": build_of(backend)["version"], "missing": missing_of(backend)}
