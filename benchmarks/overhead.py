"""The time of xdevice's calls, beside the framework's own calls and those of other libraries.

    python benchmarks/overhead.py --backend torch,numpy --rounds 101

Everything runs in one process. A round times every contender once, for about a
millisecond each, in a new random order, so that a disturbance of the machine
affects all of them. The table shows the median over the rounds of the ratio to
the native call in the same round, and half the distance between its quartiles.
`timeit` compiles all statements into the same loop, with their names as
globals and garbage collection off; the time of the empty loop is subtracted
from each.
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
"""Nanoseconds for which a statement is repeated between two readings of the clock."""


class Bench:
    """The contenders under one framework, and why some are missing."""

    def __init__(self, name: str, rounds: int, seconds: float, device: xdevice.Device) -> None:
        self.name = name
        self.rounds = rounds
        self.seconds = seconds
        self.device = device
        framework = xdevice.backend(name).framework  # imported as the adapter needs it
        self.native = NATIVE.get(name, {})
        # Why a contender, or its answer to a question, has no figure.
        self.missing: dict[str, str] = {}
        self.names: dict[str, dict[str, Any]] = {
            "native": vars(framework) | {"here": xdevice.native(device, name)},
            "xdevice": {name: getattr(xdevice, name) for name in xdevice.__all__}
            | {"here": device},
        }
        with xdevice.using(name):
            self.names["xdevice"]["xp"] = xdevice.namespace()
        for peer in PEERS:
            self._open(peer)

    def _open(self, name: str) -> None:
        """Import another library, if it supports the framework."""
        peer = PEERS[name]
        if self.name not in peer.frameworks:
            return
        try:
            module = import_module(peer.module)
            exec(peer.prepare.format(self.name), vars(module))
            self.names[name] = vars(module) | {"here": self.names["native"]["here"]}
        except Exception as error:
            self.missing[f"{name} under {self.name}"] = _short(error)

    def run(self) -> Iterator[Result]:
        """Every contender's result for every question."""
        with xdevice.using(self.name):
            for question in QUESTIONS:
                print(f"{self.name}: {question.title}", file=sys.stderr)
                yield from self._results(question, self._measure(self._timers(question)))

    def _statement(self, question: Question, contender: str) -> str | None:
        wait = self._wait() if question.key == "copy" else ""
        if contender == "xdevice":
            return question.statement + wait
        if contender != "native":
            return PEERS[contender].calls.get(question.key)
        if question.key == "tree":
            move = self.native.get("to_device")
            return move and f"for x in flat:\n    {move}"
        statement = self.native.get(question.key)
        return statement and statement + wait

    def _wait(self) -> str:
        """What follows a copy, to wait for it; the same for all contenders."""
        default = "" if self.device.kind == "cpu" else "; wait_for(device_waited_for)"
        return self.native.get("wait", default)

    def _timers(self, question: Question) -> dict[str, Timer]:
        flat = [xdevice.ones(6, device=self.device) for _ in range(question.leaves)]
        x = xdevice.ones(question.size, device=self.device)
        y = xdevice.ones(6, device=self.device)
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
                # Each has a tree of its own: a contender may write into it.
                variables = {**names, **values, "tree": nested(flat)}
                timer = Timer(statement, timer=perf_counter_ns, globals=variables)
                timer.timeit(1)
                timers[contender] = timer
            # The library does not work, or the framework is too old for the attribute.
            except Exception as error:
                self.missing[f"{contender} under {self.name}, {question.title}"] = _short(error)
        return timers

    def _measure(self, timers: dict[str, Timer]) -> dict[str, list[float]]:
        """Nanoseconds of each contender, round by round."""
        timers = {"": Timer("pass", timer=perf_counter_ns), **timers}
        repeats = {name: _repeats(timer) for name, timer in timers.items()}
        generator = random.Random(0)
        times_of: dict[str, list[float]] = {name: [] for name in timers}
        end = perf_counter_ns() + self.seconds * 1e9
        for number in range(self.rounds):
            if number >= 5 and perf_counter_ns() > end:
                break
            for name in generator.sample(list(timers), len(timers)):
                times_of[name].append(timers[name].timeit(repeats[name]) / repeats[name])
        empty = median(times_of.pop(""))
        return {name: [ns - empty for ns in times] for name, times in times_of.items()}

    def _results(self, question: Question, times_of: dict[str, list[float]]) -> Iterator[Result]:
        for name, times in times_of.items():
            low, ratio, high = quartiles_of_ratio(times, times_of.get("native"))
            against_budget = quartiles_of_ratio(times, times_of.get(question.against))[1]
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
    """How often the statement fits into a slice. This also warms the statement up."""
    number = 1
    ns = min(timer.repeat(3, number))  # the least: a first call may import or allocate
    while ns < SLICE / 4:
        number *= 4
        ns = min(timer.repeat(3, number))
    return max(1, round(number * SLICE / ns))


def _short(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError):
        return f"{error.name} is not installed"
    first_line = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {first_line}"[:160]


def main() -> None:
    parser = argparse.ArgumentParser(
        description="The time of xdevice's calls, beside the frameworks' own."
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
    arguments = parser.parse_args()
    if arguments.rounds < 2:
        parser.error(f"--rounds {arguments.rounds} gives no spread; at least 2")
    try:
        device = xdevice.as_device(arguments.device)
        backends = [xdevice.backend(name) for name in dict.fromkeys(arguments.backend.split(","))]
    except xdevice.XDeviceError as error:
        parser.error(str(error))
    results: list[Result] = []
    missing: dict[str, str] = {}
    for name in backends:
        bench = Bench(name, arguments.rounds, arguments.seconds, device)
        results += bench.run()
        missing |= bench.missing
    print(show(results, missing, arguments.markdown))
    if arguments.json:
        arguments.json.write_text(json.dumps(as_json(results, missing), indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
