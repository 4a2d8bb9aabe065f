"""Terminal recordings for the README and the site, as SVG: ``python docs/pictures/record.py`` makes them anew.

Each runs its commands as a reader would and draws what they print. Nothing in a picture is loaded from elsewhere.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
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
    env = {**kept, "PATH": path, "COLUMNS": str(WIDTH), "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        command,
        shell=True,
        cwd=folder,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{command} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def picture(title: str, shown: list[tuple[str, str]]) -> str:
    """The terminal with these commands and what they printed."""
    with open(os.devnull, "w") as nowhere:
        console = Console(record=True, width=WIDTH, file=nowhere, force_terminal=True, color_system="truecolor")
        for command, said in shown:
            console.print(Text("$ ", style="bold green") + Text(command, style="bold"))
            console.print(Text.from_ansi(said.rstrip()))
        svg = console.export_svg(title=title, unique_id="terminal")
    svg = re.sub(r"@font-face\s*\{.*?\}\s*", "", svg, flags=re.DOTALL)
    return re.sub(r"font-family: Fira Code, monospace", "font-family: ui-monospace, Menlo, Consolas, monospace", svg)


def two_gpus() -> str:
    """The README's first example, typed into a file and run under two frameworks."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    example = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert example
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "two_gpus.py").write_text(example[1], encoding="utf-8")
        lines = ["cat two_gpus.py", *(f"XDEVICE_BACKEND={name} python two_gpus.py" for name in ("torch", "jax"))]
        return picture("two GPUs on a laptop", [(line, run(line, folder)) for line in lines])


def cuda_script() -> str:
    """An ordinary CUDA program, unedited, on virtual GPUs that stand in for CUDA's."""
    line = "xdevice run --virtual-gpus 2 --stand-in examples/cuda_script.py"
    run(line, str(ROOT))  # compiles what the first run compiles
    return picture("a CUDA script on a laptop", [(line, run(line, str(ROOT)))])


PICTURES = {"two_gpus.svg": two_gpus, "cuda_script.svg": cuda_script}

if __name__ == "__main__":
    for name in sys.argv[1:] or PICTURES:
        (HERE / name).write_text(PICTURES[name](), encoding="utf-8")
        print(f"{HERE / name} is new")
