"""Terminal recordings and plots, as SVG: ``python docs/pictures/record.py`` makes them anew.

Each runs its commands as a reader would, and draws what they print or keeps what they draw. Nothing in a picture is
loaded from elsewhere. ``python docs/pictures/record.py cuda_script.svg`` makes one. The plots need a machine that does
nothing else.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.text import Text

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

WIDTH = 108


def run(command: str, folder: str) -> str:
    """What the command prints on both of its streams."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("XDEVICE")}
    path = os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", "")])
    settings = {"COLUMNS": str(WIDTH), "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        command,
        shell=True,
        cwd=folder,
        env={**kept, **settings, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{command} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def picture(title: str, shown: list[tuple[str, str]]) -> str:
    """The terminal with these commands and what they printed, no wider than its longest line."""
    longest = max(
        len(line)
        for command, said in shown
        for line in (f"$ {command}", *Text.from_ansi(said).plain.split("\n"))
    )
    with open(os.devnull, "w") as nowhere:
        console = Console(
            record=True,
            width=min(longest, WIDTH),
            file=nowhere,
            force_terminal=True,
            color_system="truecolor",
        )
        for command, said in shown:
            console.print(Text("$ ", style="bold green") + Text(command, style="bold"))
            console.print(Text.from_ansi(said.rstrip()))
        svg = console.export_svg(title=title, unique_id="terminal")
    svg = re.sub(
        r'viewBox="0 0 ([0-9.]+) ([0-9.]+)"', r'width="\1" height="\2" \g<0>', svg, count=1
    )
    svg = re.sub(r"@font-face\s*\{.*?\}\s*", "", svg, flags=re.DOTALL)
    return re.sub(
        r"font-family: Fira Code, monospace",
        "font-family: ui-monospace, Menlo, Consolas, monospace",
        svg,
    )


def frameworks() -> str:
    """One script under six frameworks, and the first lines that all of them print."""
    line = "xdevice run --backend all examples/use_gpu.py"
    printed = run(f"script -qec '{line} 2>/dev/null' /dev/null", str(ROOT))  # a terminal: colours
    shown, _, _ = printed.replace("\r", "").partition("  Copying")
    return picture("six frameworks, one script", [(line, f"{shown}  …")])


def cuda_script() -> str:
    """An ordinary CUDA program, unedited, on virtual GPUs that stand in for CUDA's."""
    line = "xdevice emulate --gpus 2 examples/cuda_script.py"
    run(line, str(ROOT))  # compiles what the first run compiles
    return picture("a CUDA script on a laptop", [(line, run(line, str(ROOT)))])


def plot(command: str) -> str:
    """The picture that the command draws into ``plot.svg``."""
    with tempfile.TemporaryDirectory() as folder:
        run(command, folder)
        svg = Path(folder, "plot.svg").read_text(encoding="utf-8")
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)  # has the date
    return re.sub(r" +$", "", svg, flags=re.MULTILINE)


def bench(experiment: str, dark: bool) -> str:
    """An experiment of ``xdevice bench`` on two virtual GPUs, on one thread each."""
    command = f"xdevice bench {experiment} --backend torch,jax --scale {SCALES[experiment]} --plot plot.svg"
    return plot(f"OMP_NUM_THREADS=1 XDEVICE_VIRTUAL_GPUS=2 {command}{' --dark' * dark}")


def training() -> str:
    """LeNet's loss, accuracy and speed."""
    script = ROOT / "examples" / "train_multi_gpu.py"
    return plot(
        f"XDEVICE_BACKEND=torch OMP_NUM_THREADS=1 python {script} --devices 2 --epochs 8 --plot plot.svg"
    )


def growth() -> str:
    """The time of to_device over leaves, depth, devices and bytes."""
    script = ROOT / "benchmarks" / "growth.py"
    return plot(f"OMP_NUM_THREADS=1 python {script} --plot plot.svg")


SCALES = {"transfer": 0.05, "copies": 0.05, "log": 0.2}
PICTURES = {"frameworks.svg": frameworks, "cuda_script.svg": cuda_script}
PICTURES |= {"training.svg": training, "growth.svg": growth}
PICTURES |= {f"{name}.svg": partial(bench, name, False) for name in SCALES}
PICTURES |= {f"{name}_dark.svg": partial(bench, name, True) for name in SCALES}

if __name__ == "__main__":
    for name in sys.argv[1:] or PICTURES:
        (HERE / name).write_text(PICTURES[name](), encoding="utf-8")
        print(f"{HERE / name} is new")
