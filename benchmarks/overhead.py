"""What xdevice costs: each question timed beside the framework's own call and beside other libraries.

    python benchmarks/overhead.py --backend torch,numpy --rounds 101

Everything runs in one process. A round times every contender once, in an order shuffled anew, for about
a millisecond each, so that what disturbs the machine disturbs all alike. What is shown is the median
over the rounds of the ratio to the native call in the same round, and half the distance between its
quartiles. All statements are compiled into the same loop by `timeit`, with their names as globals and
garbage collection off; the time of the empty loop is subtracted from each.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from statistics import median
from time import perf_counter_ns
from timeit import Timer
from typing import Any

from contenders import NATIVE, PEERS, QUESTIONS, Question
from report import Result, as_json, quartiles_of_ratio, show

import xdevice

SLICE = 1_000_000
"""Nanoseconds for which a statement is repeated between two looks at the clock."""


class Bench:
    """The contenders under one framework, and why some are missing."""

    def __init__(self, name: str, rounds: int, seconds: float, device: xdevice.Device) -> None:
        self.name, self.rounds, self.seconds, self.device = name, rounds, seconds, device
        framework = xdevice.backend(name).framework  # safely imported, whatever else is here
        self.native = NATIVE.get(name, {})
        self.missing: dict[
            str, str
        ] = {}  # why a contender, or its answer to a question, has no figure
        self.names: dict[str, dict[str, Any]] = {
            "native": vars(framework) | {"here": xdevice.native(device, name)},
            "xdevice": {word: getattr(xdevice, word) for word in xdevice.__all__}
            | {"here": device},
        }
        with xdevice.using(name):
            self.names["xdevice"]["xp"] = xdevice.namespace()
        for peer in PEERS:
            self._open(peer)

    def _open(self, peer: str) -> None:
        found = PEERS[peer]
        if self.name not in found.serves:
            return
        try:
            module = import_module(found.module)
            exec(found.prepare.format(self.name), vars(module))
            self.names[peer] = vars(module) | {"here": self.names["native"]["here"]}
        except Exception as error:
            self.missing[f"{peer} under {self.name}"] = _short(error)

    def run(self) -> Iterator[Result]:
        """Every contender's result for every question."""
        with xdevice.using(self.name):
            for question in QUESTIONS:
                print(f"{self.name}: {question.title}", file=sys.stderr)
                yield from self._results(question, self._measure(self._timers(question)))

    def _statement(self, question: Question, contender: str) -> str | None:
        wait = self._wait() if question.key == "copy" else ""
        if contender == "xdevice":
            return question.ours + wait
        if contender != "native":
            return PEERS[contender].calls.get(question.key)
        if question.key == "tree":
            move = self.native.get("to_device")
            return move and f"for x in flat:\n    {move}"
        own = self.native.get(question.key)
        return own and own + wait

    def _wait(self) -> str:
        """What follows a copy, to wait for it; the same for all contenders."""
        default = "" if self.device.kind == "cpu" else "; wait_for(device_waited_for)"
        return self.native.get("wait", default)

    def _timers(self, question: Question) -> dict[str, Timer]:
        flat = [xdevice.ones(6, device=self.device) for _ in range(question.leaves)]
        x, y = (xdevice.ones(size, device=self.device) for size in (question.size, 6))
        values = {
            "x": x,
            "y": y,
            "flat": flat,
            "wait_for": xdevice.synchronize,
            "device_waited_for": self.device,
        }
        timers = {}
        for contender, names in self.names.items():
            statement = self._statement(question, contender)
            if statement is None:
                continue
            try:
                own = {**names, **values, "tree": nested(flat)}  # one may write into its tree
                timer = Timer(statement, timer=perf_counter_ns, globals=own)
                timer.timeit(1)
                timers[contender] = timer
            except (
                Exception
            ) as error:  # the library does not work, or the framework is too old for the attribute
                self.missing[f"{contender} under {self.name}, {question.title}"] = _short(error)
        return timers

    def _measure(self, timers: dict[str, Timer]) -> dict[str, list[float]]:
        """Nanoseconds that each contender took, round by round."""
        timers = {"": Timer("pass", timer=perf_counter_ns), **timers}
        repeats = {name: _repeats(timer) for name, timer in timers.items()}
        shuffled = random.Random(0)
        taken: dict[str, list[float]] = {name: [] for name in timers}
        end = perf_counter_ns() + self.seconds * 1e9
        for done in range(self.rounds):
            if done >= 5 and perf_counter_ns() > end:
                break
            for name in shuffled.sample(list(timers), len(timers)):
                taken[name].append(timers[name].timeit(repeats[name]) / repeats[name])
        empty = median(taken.pop(""))
        return {name: [ns - empty for ns in times] for name, times in taken.items()}

    def _results(self, question: Question, taken: dict[str, list[float]]) -> Iterator[Result]:
        for name, times in taken.items():
            low, ratio, high = quartiles_of_ratio(times, taken.get("native"))
            against_budget = quartiles_of_ratio(times, taken.get(question.against))[1]
            ns = median(times)
            yield Result(
                self.name, question.title, name, len(times), ns, low, ratio, high, against_budget
            )


def nested(flat: list[Any]) -> dict[str, Any]:
    """The tensors nested as in a training state: one dict and one tuple for every three."""
    parts = iter(flat)
    layers = [
        {"weight": next(parts), "moments": (next(parts), next(parts))}
        for _ in range(len(flat) // 3)
    ]
    return {"layers": layers, "rest": list(parts)}


def _repeats(timer: Timer) -> int:
    """How often the statement fits into a slice; afterwards it has been warmed up."""
    number = 1
    while (
        taken := min(timer.repeat(3, number))
    ) < SLICE / 4:  # the least: a first call may import or allocate
        number *= 4
    return max(1, round(number * SLICE / taken))


def _short(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError):
        return f"{error.name} is not installed"
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:160]


def main() -> None:
    parser = argparse.ArgumentParser(
        description="What xdevice costs beside the frameworks' own calls."
    )
    parser.add_argument(
        "--backend", default=",".join(xdevice.available()), help="a,b,c; all that are installed"
    )
    parser.add_argument("--device", default="cpu", help="where the tensors are: cpu, gpu:0 …")
    parser.add_argument("--rounds", type=int, default=101)
    parser.add_argument(
        "--seconds", type=float, default=10, help="after these, a question ends early"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure there")
    parser.add_argument(
        "--markdown", action="store_true", help="print the table as docs/project/costs.md has it"
    )
    asked = parser.parse_args()
    if asked.rounds < 2:
        parser.error(f"--rounds {asked.rounds} gives no spread; at least 2")
    try:
        device = xdevice.as_device(asked.device)
        backends = [xdevice.backend(name) for name in dict.fromkeys(asked.backend.split(","))]
    except xdevice.XDeviceError as error:
        parser.error(str(error))
    results: list[Result] = []
    missing: dict[str, str] = {}
    for name in backends:
        bench = Bench(name, asked.rounds, asked.seconds, device)
        results += bench.run()
        missing |= bench.missing
    print(show(results, missing, asked.markdown))
    if asked.json:
        asked.json.write_text(json.dumps(as_json(results, missing), indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
