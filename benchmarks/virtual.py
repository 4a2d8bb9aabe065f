"""What a virtual GPU costs beside the CPU, and what `strict()` costs while it is on.

    OMP_NUM_THREADS=1 python benchmarks/virtual.py --backend torch,jax --rounds 101

Each framework does the same work on its CPU and on a virtual GPU, with no strict block open and within
one. As in `overhead.py`, the contenders take turns of about a millisecond, in an order shuffled anew in
each round, and a ratio is the median over the rounds' own ratios. Virtual GPUs are backed by the host's
memory and cores: the extra time is the cost of acting as a GPU. Under PyTorch two networks of its own layers
are trained too (`parts/networks_torch.py`).
"""

from __future__ import annotations

import argparse
import importlib
import json
import random
import sys
from pathlib import Path
from time import perf_counter_ns, process_time_ns
from timeit import Timer
from typing import TYPE_CHECKING, Any

from contenders import NATIVE
from report import quartiles_of_ratio

import xdevice

if TYPE_CHECKING:
    from collections.abc import Callable

NETWORKS = {"torch": "parts.networks_torch"}
"""The modules with networks in a framework's own layers."""

SLICE = 1_000_000
"""Nanoseconds for which a statement is repeated between two looks at the clock."""

WORK = {
    "x + x, 6 numbers": "x + x",
    "x @ x, 512 × 512": "large @ large",
    "training step": "step(weights, inputs)[0]",
}
CONTENDERS = ("cpu", "virtual", "cpu strict", "virtual strict")


def loss(weights: dict[str, Any], inputs: Any) -> Any:
    """A network of two layers, in operators that every framework has."""
    with xdevice.scope(xdevice.device_of(inputs)):
        hidden = inputs @ weights["in"]
        output = (hidden + abs(hidden)) @ weights["out"]
        return weights["left"] @ (output * output) @ weights["right"]


def names_on(device: xdevice.Device) -> dict[str, Any]:
    """The names that the statements use, all on the device."""
    weights = {"in": (784, 256), "out": (256, 10), "left": (1, 64), "right": (10, 1)}
    return {
        "x": xdevice.ones(6, device=device),
        "large": xdevice.rand((512, 512), device=device),
        "inputs": xdevice.rand((64, 784), device=device),
        "weights": {name: xdevice.rand(shape, device=device) for name, shape in weights.items()},
        "step": xdevice.value_and_grad(loss),
    }


def measured(name: str, rounds: int, clock: Callable[[], int]) -> dict[str, dict[str, list[float]]]:
    """Nanoseconds of each contender for each piece of work, round by round."""
    wait = NATIVE[name].get("wait", "")
    found: dict[str, dict[str, list[float]]] = {}
    with xdevice.using(name):
        values = {"cpu": names_on(xdevice.cpu()), "virtual": names_on(xdevice.gpu(0))}
        work = dict(WORK)
        if name in NETWORKS:
            steps = importlib.import_module(NETWORKS[name]).steps
            for where, device in (("cpu", xdevice.cpu()), ("virtual", xdevice.gpu(0))):
                values[where]["networks"] = steps(xdevice.native(device))
            work |= {title: f"networks[{title!r}]()" for title in values["cpu"]["networks"]}
        for title, statement in work.items():
            print(f"{name}: {title}", file=sys.stderr)
            timers = {
                where: Timer(f"({statement}){wait}", timer=clock, globals=values[where])
                for where in values
            }
            found[title] = rounds_of(timers, rounds)
    return found


def rounds_of(timers: dict[str, Timer], rounds: int) -> dict[str, list[float]]:
    repeats = {where: repeats_of(timer) for where, timer in timers.items()}
    taken: dict[str, list[float]] = {contender: [] for contender in CONTENDERS}
    shuffled = random.Random(0)
    for _ in range(rounds):
        for contender in shuffled.sample(CONTENDERS, len(CONTENDERS)):
            where, _, strict = contender.partition(" ")
            with (
                xdevice.cpu() if where == "cpu" else xdevice.gpu(0)
            ):  # one framework computes where the scope is
                taken[contender].append(turn(timers[where], repeats[where], bool(strict)))
    return taken


def turn(timer: Timer, repeats: int, strict: bool) -> float:
    if not strict:
        return timer.timeit(repeats) / repeats
    with xdevice.strict():
        timer.timeit(1)  # the first operation of a strict block looks up more
        return timer.timeit(repeats) / repeats


def repeats_of(timer: Timer) -> int:
    number = 1
    while (taken := min(timer.repeat(3, number))) < SLICE / 4:
        number *= 4
    return max(1, round(number * SLICE / taken))


def row(backend: str, title: str, taken: dict[str, list[float]]) -> list[str]:
    cells = [ratio(taken["virtual"], taken["cpu"])]
    cells += [ratio(taken[f"{where} strict"], taken[where]) for where in ("cpu", "virtual")]
    microseconds = sorted(taken["cpu"])[len(taken["cpu"]) // 2] / 1000
    return [backend, title, f"{microseconds:,.1f}", *cells]


def ratio(times: list[float], base: list[float]) -> str:
    low, middle, high = quartiles_of_ratio(times, base)
    assert low is not None
    assert middle is not None
    assert high is not None
    return f"{middle:.2f} ± {(high - low) / 2:.2f}"


def main() -> None:
    virtual = [name for name in xdevice.available() if name in NATIVE and name != "numpy"]
    parser = argparse.ArgumentParser(description="What virtual GPUs and strict() cost.")
    parser.add_argument(
        "--backend", default=",".join(virtual), help="a,b,c; all that are installed and have them"
    )
    parser.add_argument("--rounds", type=int, default=51)
    own = "count the processor's time, not the clock's: on one thread, beside other work"
    parser.add_argument("--processor-time", action="store_true", help=own)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure there")
    asked = parser.parse_args()
    if asked.rounds < 2:
        parser.error(f"--rounds {asked.rounds} gives no spread; at least 2")
    names = list(dict.fromkeys(asked.backend.split(",")))
    results = {}
    try:
        with xdevice.using(names[0]):
            xdevice.virtual_gpus(1)
        for name in names:
            results[name] = measured(
                name, asked.rounds, process_time_ns if asked.processor_time else perf_counter_ns
            )
    except xdevice.XDeviceError as error:
        parser.error(str(error))
    print(
        "| framework | work | CPU, µs | virtual GPU / CPU | strict / not, CPU | strict / not, virtual GPU |"
    )
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    for name, works in results.items():
        for title, taken in works.items():
            print("| " + " | ".join(row(name, title, taken)) + " |")
    if asked.json:
        asked.json.write_text(json.dumps(results, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
