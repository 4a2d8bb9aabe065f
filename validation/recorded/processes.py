"""The cells of a chapter in a process of its own, on virtual GPUs, in a folder that looks like the course's."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import chapters

HERE = Path(__file__).resolve().parent
ENVIRONMENT = {
    "MPLBACKEND": "agg",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "http_proxy": "http://127.0.0.1:9",
    "https_proxy": "http://127.0.0.1:9",
    "no_proxy": "localhost,127.0.0.1,::1",
    "HF_HUB_OFFLINE": "1",
}
"""Nothing answers on the port of the proxy, so that a download fails at once, everywhere alike."""

LARGE = 16 << 20


def run(
    source: Path, tab: str, options: argparse.Namespace, *more: str
) -> dict[str, dict[str, Any]]:
    """What came of each cell, in a process of its own, in a folder that looks like the course's or notebook's."""
    scratch = Path(tempfile.mkdtemp(prefix="recorded-"))
    try:
        made = folder_of_notebook if source.suffix == ".ipynb" else folder_of_chapter
        place = made(source, scratch)
        if options.data:
            link_files(options.data.absolute(), scratch / "data")
        outcomes = scratch / "outcomes.jsonl"
        outcomes.touch()
        gpus = ["--gpus", str(options.gpus), "--model", options.gpu_model]
        framework = chapters.FRAMEWORKS[tab]
        words = [sys.executable, "-m", "xdevice", "emulate", *gpus, "--backend", framework]
        words += [str(HERE / "cells.py"), str(place), tab, str(outcomes)]
        words += ["--seconds", str(options.seconds), *more]
        environment = {**os.environ, **ENVIRONMENT, "IPYTHONDIR": str(scratch / "ipython")}
        said, in_time = wait(words, place.parent, environment, 2 * options.seconds + 60)
        lines = [json.loads(line) for line in outcomes.read_text("utf-8").splitlines()]
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if options.verbose or not lines:
        print(said[-3000:], file=sys.stderr)
    found = {line["cell"]: line for line in lines if "cell" in line}
    if in_time and "over" not in (lines or [{}])[-1]:
        ended = next(cell.name for cell in chapters.read(source, tab) if cell.name not in found)
        error = f"the process ended: {' '.join(said.split())[-300:]}"
        found[ended] = {"cell": ended, "text": "", "error": error}
    return found


def folder_of_chapter(source: Path, scratch: Path) -> Path:
    """A copy of a course's chapter, in a folder beside the course's package and pictures."""
    place = scratch / source.parent.name
    place.mkdir()
    for name in ("d2l", "img"):
        if (source.parents[1] / name).exists():
            (scratch / name).symlink_to(source.parents[1] / name)
    return Path(shutil.copy(source, place))


def folder_of_notebook(source: Path, scratch: Path) -> Path:
    """A copy of a notebook's folder, so that what it writes there is discarded, with links to what is beside it."""
    folder = source.resolve().parent
    place = scratch / "notebooks" / folder.name
    shutil.copytree(folder, place, copy_function=copy, symlinks=True)
    for path in folder.parent.iterdir():
        if path != folder:
            (place.parent / path.name).symlink_to(path)
    return place / source.name


def copy(file: str, place: str) -> None:
    """A copy of a file, or a link to one that is large, such as data."""
    if os.path.getsize(file) > LARGE:
        os.symlink(file, place)
    else:
        shutil.copy2(file, place)


def link_files(folder: Path, place: Path) -> None:
    """Folders like the user's with links to its files: what a chapter unpacks there is discarded."""
    for path in sorted(folder.rglob("*")):
        target = place / path.relative_to(folder)
        if path.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(path)


def wait(
    words: list[str], folder: Path, environment: dict[str, str], seconds: float
) -> tuple[str, bool]:
    """What a process said, and whether it ended in time; else it and those that it started are ended."""
    process = subprocess.Popen(
        words,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        return process.communicate(timeout=seconds)[0], True
    except subprocess.TimeoutExpired:
        return f"ran past {seconds:g} seconds", False
    finally:
        if process.poll() is None:  # too late, or this program is being stopped
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
