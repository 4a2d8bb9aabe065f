"""What importing costs: each package in a fresh interpreter, beside one that imports nothing.

    python benchmarks/import_time.py --rounds 31

A round starts every interpreter once, in an order shuffled anew. What is shown is the time beyond the bare
interpreter's in the same round, as a ratio to it and in milliseconds: the median over the rounds, and half the
distance between the quartiles. Each has been started once before, so that files are in the cache and bytecode is
compiled. Install xdevice from a wheel: the finder of an editable install makes the bare interpreter slower.
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
        "--markdown", action="store_true", help="print the table as docs/project/costs.md has it"
    )
    asked = parser.parse_args()
    if asked.rounds < 2:
        parser.error(f"--rounds {asked.rounds} gives no spread; at least 2")
    modules = list(dict.fromkeys(["xdevice", *asked.modules]))
    missing = {name: why for name in modules if (why := problem(name))}
    found = [name for name in modules if name not in missing]
    times = interleaved(found, asked.rounds)
    results = [Result.of(name, times[name], times[""]) for name in found]
    print("\n".join(_lines(results, median(times[""]), missing, asked.markdown)))
    if asked.json:
        report = {
            "bare_ms": median(times[""]),
            "results": [asdict(r) for r in results],
            "missing": missing,
        }
        asked.json.write_text(json.dumps(report, indent=1), encoding="utf-8")


@dataclass(frozen=True)
class Result:
    """What one import adds to a bare interpreter: quartiles of the ratio and of milliseconds, and the modules."""

    module: str
    ratio: list[float]
    over_bare_ms: list[float]
    modules: int

    @classmethod
    def of(cls, module: str, times: list[float], bare: list[float]) -> Result:
        over = [a - b for a, b in zip(times, bare, strict=True)]
        ratio = [a / b for a, b in zip(over, bare, strict=True)]
        return cls(module, _quartiles(ratio), _quartiles(over), modules_of(module))


def interleaved(modules: list[str], rounds: int) -> dict[str, list[float]]:
    """Milliseconds that each interpreter took, round by round; the bare one is named ``""``."""
    shuffled, contenders = random.Random(0), ["", *modules]
    taken: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name in shuffled.sample(contenders, len(contenders)):
            taken[name].append(_milliseconds(name))
    return taken


def modules_of(module: str) -> int:
    """How many modules the import adds to those of a bare interpreter."""
    code = f"import sys; n = len(sys.modules); import {module}; print(len(sys.modules) - n)"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, check=True)
    return int(done.stdout.split()[-1])


def problem(module: str) -> str | None:
    """Why the module cannot be imported, if it cannot; it is warm afterwards."""
    done = subprocess.run(
        _command(module), capture_output=True, encoding="utf-8", errors="replace", check=False
    )
    if done.returncode == 0:
        return None
    last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
    return (
        "not installed"
        if last == f"ModuleNotFoundError: No module named {module!r}"
        else last[:160]
    )


def _milliseconds(module: str) -> float:
    start = perf_counter_ns()
    subprocess.run(_command(module), capture_output=True, check=True)
    return (perf_counter_ns() - start) / 1e6


def _command(module: str) -> list[str]:
    # -I: neither the current folder nor the user's environment has a say
    return [sys.executable, "-I", "-c", f"import {module}" if module else "pass"]


def _lines(
    results: list[Result], bare: float, missing: dict[str, str], markdown: bool
) -> Iterable[str]:
    if markdown:
        yield from (
            "| import | ratio to a bare interpreter | ms | modules |",
            "| --- | ---: | ---: | ---: |",
        )
    for result in sorted(results, key=lambda each: each.ratio[1]):
        cells = _figure(result.ratio, 2), _figure(result.over_bare_ms, 1), f"{result.modules:,}"
        if markdown:
            yield f"| `{result.module}` | " + " | ".join(cells) + " |"
        else:
            yield f"{result.module:<20}{cells[0]:>16}{cells[1]:>18} ms{cells[2]:>8} modules"
    mark = "- " if markdown else ""
    yield ""
    yield f"{mark}a bare interpreter starts in {bare:.1f} ms"
    ours = next(result.ratio[1] for result in results if result.module == "xdevice")
    word = "met" if ours <= BUDGET else "missed"
    yield f"{mark}budget, import xdevice, at most {BUDGET:g} of a bare interpreter: {ours:.3g}, {word}"
    yield from (f"{mark}no figure for {name}: {why}" for name, why in missing.items())


def _quartiles(values: list[float]) -> list[float]:
    return quantiles(values, n=4, method="inclusive")


def _figure(quartiles: list[float], digits: int) -> str:
    low, middle, high = quartiles
    return f"{middle:,.{digits}f} ± {(high - low) / 2:,.{digits}f}"


if __name__ == "__main__":
    main()
