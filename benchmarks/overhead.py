"""The time of xdevice's calls, beside the framework's own calls and those of other libraries.

    python benchmarks/overhead.py --backend torch,numpy --rounds 101

Each framework runs in a process of its own. A round times every contender
once, for about a millisecond each, in a new random order, so that a
disturbance of the machine affects all of them. The table shows the ratio of
the least times, which other work on the machine can only make longer, and half
the distance between the quartiles of the rounds' ratios. The questions about
two GPUs are measured on virtual ones where there are no others. `timeit`
compiles all statements into the same loop, with their names as globals and
garbage collection off; the time of the empty loop is subtracted from each.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from statistics import median
from time import perf_counter_ns, process_time_ns
from timeit import Timer
from typing import Any

import numpy
from contenders import GPU, MODELS, NATIVE, PEERS, QUESTIONS, Question
from report import (
    Result,
    as_json,
    exceeded,
    grown,
    quartiles_of_ratio,
    recorded_ratios,
    show,
)

import xdevice
from xdevice import machine

SLICE = 1_000_000
"""Nanoseconds for which a statement is repeated between two readings of the clock."""


LOOPS = {"tree": "to_device", "move_tree": "move"}
"""The native call that moves one leaf, for the questions about trees."""


class Bench:
    """The contenders under one framework, and why some are missing."""

    def __init__(self, name: str, options: argparse.Namespace, device: xdevice.Device) -> None:
        self.name = name
        self.rounds: int = options.rounds
        self.seconds: float = options.seconds
        self.clock = process_time_ns if options.processor_time else perf_counter_ns
        self.device = device
        self.framework = xdevice.backend(name).framework  # imported as the adapter needs it
        self.native = NATIVE.get(name, {})
        # Why a contender, or its answer to a question, has no figure.
        self.missing: dict[str, str] = {}
        self.names: dict[str, dict[str, Any]] = {
            "native": vars(self.framework) | {"numpy_itself": numpy},
            "xdevice": {name: getattr(xdevice, name) for name in xdevice.__all__},
        }
        with xdevice.using(name):
            self.names["xdevice"]["xp"] = xdevice.namespace()
            self.has_two_gpus = xdevice.count("gpu") > 1
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
            self.names[name] = dict(vars(module))
        except Exception as error:
            self.missing[f"{name} under {self.name}"] = _short(error)

    def run(self, questions: list[Question]) -> Iterator[Result]:
        """Every contender's result for each question."""
        with xdevice.using(self.name):
            for question in questions:
                if question.place == GPU and not self.has_two_gpus:
                    continue
                print(f"{self.name}: {question.title}", file=sys.stderr)
                yield from self._results(question, self._measure(self._timers(question)))

    def _statement(self, question: Question, contender: str) -> str | None:
        wait = self._wait() if question.key == "copy" else ""
        if question.key == "model" and self.name not in MODELS:
            return None
        if contender == "xdevice":
            return question.statement + wait
        if contender != "native":
            return PEERS[contender].calls.get(question.key)
        if question.key in LOOPS:
            move = self.native.get(LOOPS[question.key])
            return move and f"for x in flat:\n    {move}"
        statement = self.native.get(question.key)
        return statement and statement + wait

    def _wait(self) -> str:
        """What follows a copy, to wait for it; the same for all contenders."""
        default = "" if self.device.kind == "cpu" else "; wait_for(device_waited_for)"
        return self.native.get("wait", default)

    def _timers(self, question: Question) -> dict[str, Timer]:
        timers = {}
        for contender in self.names:
            statement = self._statement(question, contender)
            if statement is None:
                continue
            try:
                variables = self._variables(question, contender)
                timer = Timer(statement, timer=self.clock, globals=variables)
                timer.timeit(1)
                timers[contender] = timer
            # The library does not work, or the framework is too old for the attribute.
            except Exception as error:
                self.missing[f"{contender} under {self.name}, {question.title}"] = _short(error)
        return timers

    def _variables(self, question: Question, contender: str) -> dict[str, Any]:
        """The names that a statement uses. A contender may write into a tree, so each has its own.

        A model is moved in place, so each contender has a model of its own, too.
        """
        here = xdevice.as_device(question.place or self.device)
        flat = [xdevice.ones(question.size, device=here) for _ in range(question.leaves)]
        variables = {
            **self.names[contender],
            "x": xdevice.ones(question.size, device=here),
            "y": xdevice.ones(6, device=here),
            "flat": flat,
            "tree": nested(flat),
            "here": self._device_for(contender, here),
            "wait_for": xdevice.synchronize,
            "device_waited_for": here,
        }
        if question.place == GPU:
            variables["there"] = self._device_for(contender, xdevice.gpu(1))
        if question.key == "model":
            model = eval(MODELS[self.name], {self.name: self.framework})
            variables["model"] = xdevice.to_device(model, here)
        return variables

    def _device_for(self, contender: str, device: xdevice.Device) -> Any:
        return device if contender == "xdevice" else xdevice.native(device, self.name)

    def _measure(self, timers: dict[str, Timer]) -> dict[str, list[float]]:
        """Nanoseconds of each contender, round by round."""
        timers = {"": Timer("pass", timer=self.clock), **timers}
        repeats = {name: _repeats(timer) for name, timer in timers.items()}
        generator = random.Random(0)
        times_of: dict[str, list[float]] = {name: [] for name in timers}
        end = perf_counter_ns() + self.seconds * 1e9
        for number in range(self.rounds):
            if number >= 5 and perf_counter_ns() > end:
                break
            for name in generator.sample(list(timers), len(timers)):
                times_of[name].append(timers[name].timeit(repeats[name]) / repeats[name])
                xdevice.synchronize()  # what this contender left running must not slow the next one
        empty = min(times_of.pop(""))
        return {name: [ns - empty for ns in times] for name, times in times_of.items()}

    def _results(self, question: Question, times_of: dict[str, list[float]]) -> Iterator[Result]:
        for name, times in times_of.items():
            low, middle, high = quartiles_of_ratio(times, times_of.get("native"))
            ns = median(times)
            yield Result(
                self.name, question.title, name, len(times), ns, min(times), low, middle, high
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


def measured(options: argparse.Namespace, name: str) -> tuple[list[Result], dict[str, str]]:
    """The results under one framework, measured in this process, and what is missing."""
    missing: dict[str, str] = {}
    with xdevice.using(name):
        if options.virtual and not machine.gpus()["gpus"]:
            try:
                xdevice.virtual_gpus(options.virtual)
            except xdevice.XDeviceError as error:
                missing[f"two GPUs under {name}"] = _short(error)
        device = xdevice.as_device(options.device)
        bench = Bench(name, options, device)
        results = list(bench.run(questions_with(options.select)))
    return results, missing | bench.missing


def measured_by_child(
    options: argparse.Namespace, name: str
) -> tuple[list[Result], dict[str, str]]:
    """The same, measured in a process that imports no other framework."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "results.json")
        command = [
            *(sys.executable, __file__, "--backend", name, "--json", str(file)),
            *("--device", options.device, "--virtual", str(options.virtual)),
            *("--rounds", str(options.rounds), "--seconds", str(options.seconds)),
            *("--select", options.select),
            *["--processor-time"] * options.processor_time,
        ]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        report = json.loads(file.read_text(encoding="utf-8"))
    return [Result(**result) for result in report["results"]], report["missing"]


def questions_with(text: str) -> list[Question]:
    """The questions with the text in their titles."""
    return [question for question in QUESTIONS if text in question.title]


def parsed_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="The time of xdevice's calls, beside the frameworks' own."
    )
    parser.add_argument(
        "--backend", default=",".join(xdevice.available()), help="a,b,c; all that are installed"
    )
    parser.add_argument("--device", default="cpu", help="where the tensors are: cpu, gpu:0 …")
    parser.add_argument(
        "--virtual",
        type=int,
        default=2,
        metavar="N",
        help="virtual GPUs where the machine has none, for the questions about two; 0: none",
    )
    parser.add_argument(
        "--select", default="", metavar="TEXT", help="only the questions with this text"
    )
    parser.add_argument("--rounds", type=int, default=101)
    parser.add_argument(
        "--seconds", type=float, default=10, help="after these, a question ends early"
    )
    help_on_clock = "count the processor's time, not the clock's: beside other work"
    parser.add_argument("--processor-time", action="store_true", help=help_on_clock)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure there")
    parser.add_argument(
        "--markdown", action="store_true", help="print the table as validation/costs.md has it"
    )
    parser.add_argument(
        "--fail-beyond",
        type=float,
        metavar="FACTOR",
        help="exit with status 1 if a figure is more than FACTOR times its budget",
    )
    parser.add_argument(
        "--recorded",
        type=Path,
        metavar="FILE",
        help="with --fail-beyond: or more than FACTOR times that of the first table in FILE",
    )
    options = parser.parse_args()
    if options.rounds < 2:
        parser.error(f"--rounds {options.rounds} gives no spread; at least 2")
    if not questions_with(options.select):
        parser.error(f"--select {options.select}: no question has this text")
    try:
        xdevice.as_device(options.device)
        options.backends = [
            str(xdevice.backend(name)) for name in dict.fromkeys(options.backend.split(","))
        ]
    except xdevice.XDeviceError as error:
        parser.error(str(error))
    return options


def main() -> int:
    options = parsed_options()
    results: list[Result] = []
    missing: dict[str, str] = {}
    measure = measured if len(options.backends) == 1 else measured_by_child
    for name in options.backends:
        new_results, new_missing = measure(options, name)
        results += new_results
        missing |= new_missing
    print(show(results, missing, options.markdown))
    if options.json:
        options.json.write_text(json.dumps(as_json(results, missing), indent=1), encoding="utf-8")
    if options.fail_beyond is None:
        return 0
    over_budget = list(exceeded(results, options.fail_beyond))
    for verdict in over_budget:
        comparison = f"{verdict.question}, × {verdict.against}: {verdict}"
        print(f"more than {options.fail_beyond:g} times a budget: {comparison}", file=sys.stderr)
    grown_figures = []
    if options.recorded:
        ratio_of = recorded_ratios(options.recorded)
        grown_figures = list(grown(results, ratio_of, options.fail_beyond))
    for sentence in grown_figures:
        print(f"more than {options.fail_beyond:g} times as before: {sentence}", file=sys.stderr)
    return 1 if over_budget or grown_figures else 0


if __name__ == "__main__":
    sys.exit(main())
