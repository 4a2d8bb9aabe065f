"""What a virtual GPU costs beside the CPU, and what `strict()` costs while it is on.

    OMP_NUM_THREADS=1 python benchmarks/virtual.py --backend torch,jax --rounds 101
    OMP_NUM_THREADS=1 python benchmarks/virtual.py --backend torch --stand-in rtx4090

Each framework does the same work on its CPU and on a virtual GPU, outside and
in a strict block. As in `overhead.py`, the contenders take turns of about a
millisecond, in an order that is shuffled anew in each round, and a ratio is
the median of the rounds' ratios. Virtual GPUs are backed by the host's memory
and cores: the extra time is the cost of acting as a GPU. Under PyTorch two
networks of its own layers are trained too (`parts/networks_torch.py`).
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
from typing import TYPE_CHECKING, Any, TypeAlias

from contenders import NATIVE
from report import quartiles_of_ratio

import xdevice

if TYPE_CHECKING:
    from collections.abc import Callable

Times: TypeAlias = "dict[str, list[float]]"
"""Nanoseconds of each contender, round by round."""

NETWORKS = {"torch": "parts.networks_torch"}
"""The modules with networks in a framework's own layers."""

SLICE = 1_000_000
"""Nanoseconds for which a statement is repeated between two readings of the clock."""

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


def measured(name: str, rounds: int, clock: Callable[[], int]) -> dict[str, Times]:
    """Nanoseconds of each contender for each piece of work, round by round."""
    wait = NATIVE[name].get("wait", "")
    results: dict[str, Times] = {}
    with xdevice.using(name):
        devices = {"cpu": xdevice.cpu(), "virtual": xdevice.gpu(0)}
        variables = {kind: names_on(device) for kind, device in devices.items()}
        work = dict(WORK)
        if name in NETWORKS:
            steps = importlib.import_module(NETWORKS[name]).steps
            for kind, device in devices.items():
                variables[kind]["networks"] = steps(xdevice.native(device))
            titles = variables["cpu"]["networks"]
            work |= {title: f"networks[{title!r}]()" for title in titles}
        for title, statement in work.items():
            print(f"{name}: {title}", file=sys.stderr)
            timers = {
                kind: Timer(f"({statement}){wait}", timer=clock, globals=variables[kind])
                for kind in devices
            }
            results[title] = rounds_of(timers, devices, rounds)
    return results


def rounds_of(timers: dict[str, Timer], devices: dict[str, xdevice.Device], rounds: int) -> Times:
    repeats = {kind: repeats_of(timer) for kind, timer in timers.items()}
    times: Times = {contender: [] for contender in CONTENDERS}
    generator = random.Random(0)
    for _ in range(rounds):
        for contender in generator.sample(CONTENDERS, len(CONTENDERS)):
            kind, _, strict = contender.partition(" ")
            with devices[kind]:  # one framework computes where the scope is
                times[contender].append(turn(timers[kind], repeats[kind], bool(strict)))
    return times


def turn(timer: Timer, repeats: int, strict: bool) -> float:
    if not strict:
        return timer.timeit(repeats) / repeats
    with xdevice.strict():
        timer.timeit(1)  # the first operation of a strict block looks up more
        return timer.timeit(repeats) / repeats


def repeats_of(timer: Timer) -> int:
    number = 1
    while (duration := min(timer.repeat(3, number))) < SLICE / 4:
        number *= 4
    return max(1, round(number * SLICE / duration))


def row(backend: str, title: str, times: Times) -> list[str]:
    microseconds = sorted(times["cpu"])[len(times["cpu"]) // 2] / 1000
    return [
        backend,
        title,
        f"{microseconds:,.1f}",
        ratio(times["virtual"], times["cpu"]),
        ratio(times["cpu strict"], times["cpu"]),
        ratio(times["virtual strict"], times["virtual"]),
    ]


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
    help_on_clock = "count the processor's time, not the clock's: on one thread, beside other work"
    parser.add_argument("--processor-time", action="store_true", help=help_on_clock)
    parser.add_argument(
        "--stand-in",
        metavar="MODEL",
        help="PyTorch's stand in for real GPUs of this model (rtx4090)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure there")
    options = parser.parse_args()
    if options.rounds < 2:
        parser.error(f"--rounds {options.rounds} gives no spread; at least 2")
    clock = process_time_ns if options.processor_time else perf_counter_ns
    names = list(dict.fromkeys(options.backend.split(",")))
    results = {}
    try:
        with xdevice.using(names[0]):
            xdevice.virtual_gpus(1, stand_in=options.stand_in is not None, model=options.stand_in)
        for name in names:
            results[name] = measured(name, options.rounds, clock)
    except xdevice.XDeviceError as error:
        parser.error(str(error))
    ratios = "virtual GPU / CPU | strict / not, CPU | strict / not, virtual GPU"
    print(f"| framework | work | CPU, µs | {ratios} |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    for name, works in results.items():
        for title, times in works.items():
            print("| " + " | ".join(row(name, title, times)) + " |")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
