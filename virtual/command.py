"""``xdevice virtual``: whether every Python here applies ``XDEVICE_VIRTUAL_GPUS``, and plug-ins compiled in advance."""

import argparse
import os
import sys
import sysconfig
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from xdevice.cli.probe import asked as ask_framework
from xdevice.errors import ArgumentError, NotSupportedError
from xdevice.framework.adapters import available, find, is_installed, not_installed
from xdevice.machine import usable_threads
from xdevice.virtual import plugins, probe
from xdevice.virtual.request import ENV

NAME = "xdevice-virtual-gpus.pth"
LINE = (
    f"import os; os.environ.get({ENV!r}) and __import__('importlib.util').util.find_spec('xdevice') "
    "and __import__('xdevice')\n"
)
"""What Python executes at each start: without the variable, or without xdevice, it does nothing."""


def main(options: argparse.Namespace) -> int:
    if options.to is not None and options.action != "build":
        raise ArgumentError("--to goes with xdevice virtual build")
    if options.action == "build":
        return _build(options.backend, options.to)
    file = Path(sysconfig.get_path("purelib")) / NAME
    applied = f"every Python of this environment applies {ENV} at its start"
    if options.action == "status":
        by = "programs that import xdevice, by xdevice run, and by their children"
        print(
            f"installed: {file}; {applied}"
            if file.exists()
            else f"not installed: {ENV} is applied by {by}"
        )
        print(f"{ENV}={os.environ[ENV]}" if ENV in os.environ else f"{ENV} is not set")
        _show_missing(options.backend)
        return 0
    try:
        if options.action == "install":
            file.write_text(LINE, encoding="ascii")
            print(f"{file} is installed; {applied}")
        else:
            there = file.exists()
            file.unlink(missing_ok=True)
            print(f"{file} is removed" if there else f"{file} is not there; nothing was installed")
    except OSError as error:
        cure = "use an environment of your own, or start programs with xdevice run --virtual-gpus 2 --stand-in SCRIPT"
        raise NotSupportedError(f"{file} cannot be written ({error.strerror}); {cure}") from error
    return 0


def _show_missing(asked: list[str]) -> None:
    """Print what virtual GPUs lack under the installed versions of the frameworks, a line for each feature."""
    for name, answer in _answers(
        asked or available(), lambda name: ask_framework(probe.lacking, name, without=ENV)
    ):
        if "error" in answer:
            print(f"{name}: {answer['error']}")
        for each in answer.get("missing", ()):
            what = (
                "virtual GPUs do not work"
                if each["essential"]
                else f"{each['feature']}: not supported"
            )
            print(f"{name} {answer['version']}: {what}: {each['reason']}; {each['cure']}")


def _answers(
    names: list[str], ask: Callable[[str], dict[str, Any]]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each framework's answer, a few of them being asked at the same time."""
    with ThreadPoolExecutor(max(1, (usable_threads() or 2) // 2)) as pool:
        yield from zip(names, pool.map(ask, names), strict=True)


def _build(asked: list[str], to: str | None) -> int:
    """Compile the plug-ins of these frameworks, or of all that are installed; 1 if one could not be."""
    missing = [name for name in map(find, asked) if not is_installed(name)]
    if missing:
        raise not_installed(missing[0])
    names = [str(find(name)) for name in asked] or available()
    folder = _prepared(Path(to)) if to is not None else None
    without: list[str] = []
    failed = False

    def ask(name: str) -> dict[str, Any]:
        return ask_framework(probe.plugin, name, str(folder or ""), without=ENV)

    with _progress(names):
        for name, answer in _answers(names, ask):
            failed |= "error" in answer and (bool(asked) or "path" in answer)
            if not answer:
                without.append(name)
            elif "error" in answer:
                print(f"{name}: {answer['error']}", flush=True)
            else:
                took = answer["seconds"]
                how = "is there already" if took is None else f"was compiled in {took:.1f} s"
                print(f"{name}: {answer['path']} {how}", flush=True)
    if without:
        print(f"no plug-in is needed for {', '.join(without)}")
    if folder is not None and not failed:
        print(f"set {plugins.ENV}={folder} where they are to be used")
    return int(failed)


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
        raise ArgumentError(
            f"--to {folder} would not be read, {reason}; name another folder, or chmod go-w {folder}"
        )
    return folder


def _progress(names: list[str]) -> AbstractContextManager[Any]:
    """What is shown meanwhile: a line on stderr, which moves where there are rich and a terminal."""
    title = f"looking for the plug-ins of {', '.join(names)}, and compiling what is missing"
    if sys.stderr.isatty():
        try:
            from xdevice.launcher.terminal import console

            return console(stderr=True).status(title)
        except ModuleNotFoundError:  # rich
            pass
    print(title, file=sys.stderr, flush=True)
    return nullcontext()
