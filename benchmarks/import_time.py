"""What importing costs: each package in a fresh interpreter, beside one that imports nothing.

    python benchmarks/import_time.py --rounds 31

A round starts every interpreter once, in an order shuffled anew. What is shown is the median over the
rounds of the time beyond the bare interpreter's in the same round, and half the distance between its
quartiles. Each has been started once before, so that files are in the cache and bytecode is compiled.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from statistics import quantiles
from time import perf_counter_ns

BUDGET = 10.0
"""Milliseconds that ``import xdevice`` may take."""

MODULES = (
    "xdevice",
    "optree",
    "einops",
    "array_api_compat",
    "numpy",
    "accelerate",
    "lightning_fabric",
    "ivy",
    "torch",
    "tensorflow",
    "paddle",
    "mxnet",
    "jax",
)


def main() -> None:
    parser = argparse.ArgumentParser(description="What importing xdevice costs beside other packages.")
    parser.add_argument("modules", nargs="*", default=MODULES)
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure there")
    parser.add_argument("--markdown", action="store_true", help="print the table as the README has it")
    asked = parser.parse_args()
    if asked.rounds < 2:
        parser.error(f"--rounds {asked.rounds} gives no spread; at least 2")
    modules = list(dict.fromkeys(["xdevice", *asked.modules]))
    missing = {name: why for name in modules if (why := problem(name))}
    over = milliseconds_over_bare([name for name in modules if name not in missing], asked.rounds)
    print("\n".join(_lines(over, missing, asked.markdown)))
    if asked.json:
        asked.json.write_text(json.dumps({"over_bare_ms": over, "missing": missing}, indent=1), encoding="utf-8")


def milliseconds_over_bare(modules: list[str], rounds: int) -> dict[str, list[float]]:
    """The quartiles, over the rounds, of what each import adds to a bare interpreter."""
    shuffled = random.Random(0)
    taken: dict[str, list[float]] = {name: [] for name in modules}
    for _ in range(rounds):
        times = {name: _milliseconds(name) for name in shuffled.sample(["", *modules], len(modules) + 1)}
        for name in modules:
            taken[name].append(times[name] - times[""])
    return {name: quantiles(times, n=4, method="inclusive") for name, times in taken.items()}


def problem(module: str) -> str | None:
    """Why the module cannot be imported, if it cannot; it is warm afterwards."""
    done = subprocess.run(_command(module), capture_output=True, encoding="utf-8", errors="replace", check=False)
    if done.returncode == 0:
        return None
    last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
    return "not installed" if last == f"ModuleNotFoundError: No module named {module!r}" else last[:160]


def _milliseconds(module: str) -> float:
    start = perf_counter_ns()
    subprocess.run(_command(module), capture_output=True, check=True)
    return (perf_counter_ns() - start) / 1e6


def _command(module: str) -> list[str]:
    # -I: neither the current folder nor the user's environment has a say
    return [sys.executable, "-I", "-c", f"import {module}" if module else "pass"]


def _lines(over: dict[str, list[float]], missing: dict[str, str], markdown: bool) -> Iterable[str]:
    if markdown:
        yield from ("| import | ms over a bare interpreter |", "| --- | ---: |")
    for name, (low, middle, high) in sorted(over.items(), key=lambda item: item[1][1]):
        figure = f"{middle:,.1f} ± {(high - low) / 2:,.1f}"
        yield f"| `{name}` | {figure} |" if markdown else f"{name:<20}{figure:>16} ms"
    mark = "- " if markdown else ""
    yield ""
    ours = over["xdevice"][1]
    word = "met" if ours <= BUDGET else "missed"
    yield f"{mark}budget, import xdevice: at most {BUDGET:g} ms: {ours:.1f} ms, {word} by {abs(BUDGET - ours):.1f} ms"
    yield from (f"{mark}no figure for {name}: {why}" for name, why in missing.items())


if __name__ == "__main__":
    main()
