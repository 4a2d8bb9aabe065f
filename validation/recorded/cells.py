"""Run the cells of one chapter or notebook in this process, as IPython does, and write what each prints to a file.

    xdevice emulate --gpus 2 validation/recorded/cells.py CHAPTER.md pytorch OUTCOMES.jsonl

run.py starts it, in a folder of its own. A line of OUTCOMES is written as soon as its cell has ended;
the last line tells that the process has not ended in the middle.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

import chapters

from xdevice.tools.course.kernel import Tab

INSTALLS = re.compile(
    r"^(\s*)[!%]\s*(?:sudo |python3? -m )*(?:pip3?|uv|conda|mamba|apt|apt-get)\b.*$"
)
"""A line that installs or removes packages: it is left out, so that notebooks change no environment."""


def seed(number: int, tab: str) -> None:
    """Set the seeds that a program could have set before its first cell."""
    import random

    import numpy as np

    random.seed(number)
    np.random.seed(number)
    if tab == "pytorch":
        import torch

        torch.manual_seed(number)
    elif tab == "tensorflow":
        import tensorflow as tf

        tf.keras.utils.set_random_seed(number)
    elif tab == "mxnet":
        import mxnet as mx

        mx.random.seed(number)
    elif tab == "paddle":
        import paddle

        paddle.seed(number)


def shell_without_prompts() -> Any:
    """IPython's shell, which prints a cell's value as a notebook does, without ``Out[1]:``."""
    from IPython.core.displayhook import DisplayHook
    from IPython.core.interactiveshell import InteractiveShell

    class WithoutPrompt(DisplayHook):
        def write_output_prompt(self) -> None:
            pass

    InteractiveShell.displayhook_class = WithoutPrompt
    shell: Any = InteractiveShell.instance()
    shell.colors, shell.enable_gui = "NoColor", lambda *_, **__: None
    shell.input_transformers_cleanup.append(without_installing)
    return shell


def without_installing(lines: list[str]) -> list[str]:
    """The lines of a cell without those that install packages."""
    return [INSTALLS.sub(r"\1pass", line) for line in lines]


def run(chapter: Path, tab: str, outcomes: Path, seconds: float, last: str) -> None:
    """Run the cells in turn, one after a failure too, to the last one or until the time is over."""
    from IPython.utils.capture import capture_output

    shell = shell_without_prompts()
    shell.user_ns["tab"] = Tab(chapters.FRAMEWORKS[tab])
    began = time.monotonic()
    with outcomes.open("a", encoding="utf-8") as file:
        for cell in chapters.read(chapter, tab):
            if time.monotonic() - began > seconds:
                break
            since = time.monotonic()
            with capture_output() as captured:
                result = shell.run_cell(
                    cell.code, store_history=True
                )  # IPython looks there for "x;"
            raised = result.error_before_exec or result.error_in_exec
            outcome = {
                "cell": cell.name,
                "text": captured.stdout if raised is None else "",
                "error": "" if raised is None else f"{type(raised).__name__}: {raised}",
                "seconds": round(time.monotonic() - since, 1),
            }
            print(json.dumps(outcome), file=file, flush=True)
            if last and cell.name == last:
                break
        print(json.dumps({"over": True}), file=file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("chapter", type=Path)
    add("tab", choices=chapters.FRAMEWORKS)
    add("outcomes", type=Path)
    add("--seconds", type=float, default=120.0, help="begin no cell after so many seconds (120)")
    add("--seed", type=int, help="set the seeds before the first cell")
    add("--last", default="", help="the cell to stop after (the chapter's last)")
    options = parser.parse_args()
    os.environ.setdefault("MPLBACKEND", "agg")
    sys.path.insert(0, str(options.chapter.parents[1]))
    if options.chapter.suffix == ".ipynb":
        sys.path.insert(0, str(options.chapter.parent))
    if options.seed is not None:
        seed(options.seed, options.tab)
    run(options.chapter, options.tab, options.outcomes, options.seconds, options.last)


if __name__ == "__main__":
    main()
