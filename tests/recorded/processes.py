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
from cells import FRAMEWORKS

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


def run(
    course: Path, chapter: str, tab: str, options: argparse.Namespace, *more: str
) -> dict[str, dict[str, Any]]:
    """What came of each cell, in a process of its own, in a folder that looks like the course's."""
    scratch = Path(tempfile.mkdtemp(prefix="recorded-"))
    try:
        for name in ("d2l", "img"):
            if (course / name).exists():
                (scratch / name).symlink_to(course / name)
        place = scratch / chapter
        place.parent.mkdir(parents=True)
        source = shutil.copy(course / f"{chapter}.md", place.parent)
        outcomes = scratch / "outcomes.jsonl"
        outcomes.touch()
        gpus = ["--virtual-gpus", "2", "--stand-in", "--gpu-model", options.gpu_model]
        words = [sys.executable, "-m", "xdevice", "run", *gpus, "--backend", FRAMEWORKS[tab]]
        words += [str(HERE / "cells.py"), str(source), tab, str(outcomes)]
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
        cells = chapters.cells((course / f"{chapter}.md").read_text(encoding="utf-8"), tab)
        ended = next(cell.name for cell in cells if cell.name not in found)
        error = f"the process ended: {' '.join(said.split())[-300:]}"
        found[ended] = {"cell": ended, "text": "", "error": error}
    return found


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
