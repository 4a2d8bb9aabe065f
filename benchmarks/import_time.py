"""What importing costs: each package in a fresh interpreter, beside one that imports nothing.

    python benchmarks/import_time.py --rounds 31

A round starts every interpreter once, in an order that is shuffled anew. The
table has the time beyond that of the bare interpreter in the same round, as a
ratio to it and in milliseconds: the median over the rounds, and half the
distance between the quartiles. Each interpreter has been started once before,
so that files are in the cache and bytecode is compiled. Install xdevice from a
wheel: the finder of an editable install makes the bare interpreter slower.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter_ns

BUDGET = 0.4
"""What ``import xdevice`` may add, as a ratio to the start of a bare interpreter."""

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
    parser = argparse.ArgumentParser(
        description="What importing xdevice costs beside other packages."
    )
    parser.add_argument("modules", nargs="*", default=MODULES)
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure there")
    parser.add_argument(
        "--markdown", action="store_true", help="print the table as validation/costs.md has it"
    )
    options = parser.parse_args()
    if options.rounds < 2:
        parser.error(f"--rounds {options.rounds} gives no spread; at least 2")
    modules = list(dict.fromkeys(["xdevice", *options.modules]))
    problems = {name: problem(name) for name in modules}
    missing = {name: reason for name, reason in problems.items() if reason is not None}
    importable = [name for name in modules if name not in missing]
    times = interleaved(importable, options.rounds)
    bare = median(times[""])
    results = [Result.of(name, times[name], times[""]) for name in importable]
    print("\n".join(_lines(results, bare, missing, options.markdown)))
    if options.json:
        report = {
            "bare_ms": bare,
            "results": [asdict(result) for result in results],
            "missing": missing,
        }
        options.json.write_text(json.dumps(report, indent=1), encoding="utf-8")


@dataclass(frozen=True)
class Result:
    """What one import adds to a bare interpreter, with quartiles of the ratio and of the time."""

    module: str
    ratio: list[float]
    over_bare_ms: list[float]
    modules: int

    @classmethod
    def of(cls, module: str, times: list[float], bare: list[float]) -> Result:
        over_bare = [a - b for a, b in zip(times, bare, strict=True)]
        ratio = [a / b for a, b in zip(over_bare, bare, strict=True)]
        return cls(module, _quartiles(ratio), _quartiles(over_bare), modules_of(module))


def interleaved(modules: list[str], rounds: int) -> dict[str, list[float]]:
    """Milliseconds that each interpreter took, round by round; the bare one is named ``""``."""
    generator = random.Random(0)
    contenders = ["", *modules]
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name in generator.sample(contenders, len(contenders)):
            times[name].append(_milliseconds(name))
    return times


def modules_of(module: str) -> int:
    """How many modules the import adds to those of a bare interpreter."""
    code = f"import sys; n = len(sys.modules); import {module}; print(len(sys.modules) - n)"
    process = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, check=True)
    return int(process.stdout.split()[-1])


def problem(module: str) -> str | None:
    """Why the module cannot be imported, or ``None``. This import is the one before the rounds."""
    process = subprocess.run(
        _command(module), capture_output=True, encoding="utf-8", errors="replace", check=False
    )
    if process.returncode == 0:
        return None
    lines = process.stderr.strip().splitlines() or [f"exit status {process.returncode}"]
    if lines[-1] == f"ModuleNotFoundError: No module named {module!r}":
        return "not installed"
    return lines[-1][:160]


def _milliseconds(module: str) -> float:
    start = perf_counter_ns()
    subprocess.run(_command(module), capture_output=True, check=True)
    return (perf_counter_ns() - start) / 1e6


def _command(module: str) -> list[str]:
    # -I: without the current folder and the user's environment
    return [sys.executable, "-I", "-c", f"import {module}" if module else "pass"]


def _lines(
    results: list[Result], bare: float, missing: dict[str, str], markdown: bool
) -> Iterable[str]:
    if markdown:
        yield from (
            "| import | ratio to a bare interpreter | ms | modules |",
            "| --- | ---: | ---: | ---: |",
        )
    for result in sorted(results, key=lambda result: result.ratio[1]):
        cells = _figure(result.ratio, 2), _figure(result.over_bare_ms, 1), f"{result.modules:,}"
        if markdown:
            yield f"| `{result.module}` | " + " | ".join(cells) + " |"
        else:
            yield f"{result.module:<20}{cells[0]:>16}{cells[1]:>18} ms{cells[2]:>8} modules"
    bullet = "- " if markdown else ""
    yield ""
    yield f"{bullet}a bare interpreter starts in {bare:.1f} ms"
    ratio = next(result.ratio[1] for result in results if result.module == "xdevice")
    verdict = "met" if ratio <= BUDGET else "missed"
    budget = f"budget, import xdevice, at most {BUDGET:g} of a bare interpreter"
    yield f"{bullet}{budget}: {ratio:.3g}, {verdict}"
    for name, reason in missing.items():
        yield f"{bullet}no figure for {name}: {reason}"


def _quartiles(values: list[float]) -> list[float]:
    return quantiles(values, n=4, method="inclusive")


def _figure(quartiles: list[float], digits: int) -> str:
    low, middle, high = quartiles
    return f"{middle:,.{digits}f} ± {(high - low) / 2:,.{digits}f}"


if __name__ == "__main__":
    main()
