"""How the time of `to_device` grows with leaves, depth, devices and bytes.

    python benchmarks/growth.py --backend torch --rounds 11 --plot growth.svg

A tree moves from one GPU to another (from several GPUs to the CPU, where the
number of devices grows). Its contenders are the framework's own call in a loop
over a flat list, and the libraries that move trees. As in `overhead.py`, they
take turns in a new random order in each round, and the least times count. The
table has the time per leaf, or per megabyte. The GPUs are virtual where the
machine has none.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, NamedTuple

from contenders import NATIVE, PEERS

import xdevice
from xdevice import Device, machine

LEAVES = (1, 10, 100, 1_000, 10_000, 100_000)
DEPTHS = (1, 10, 100, 300, 1_000)
DEVICES = (1, 2, 4, 8, 16, 32, 64)
SIZES = tuple(10**power for power in range(4, 10))
"""10 kB to 1 GB."""

LEAVES_ON_DEVICES = 64

SLICE = 2e-3
"""Seconds for which a contender is repeated between two readings of the clock."""

AXES = {
    "leaves": "tensors in a list",
    "depth": "dicts, each in the one before, with one tensor each",
    "devices": f"GPUs on which {LEAVES_ON_DEVICES} tensors are",
    "bytes": "bytes of one tensor",
}
"""What grows, in words."""


class Case(NamedTuple):
    """A tree to move, and its tensors in a flat list."""

    axis: str
    size: int
    tree: Any
    flat: list[Any]
    destination: Device

    @property
    def parts(self) -> float:
        """What the time is divided by: the number of leaves, or of megabytes."""
        return self.size / 1e6 if self.axis == "bytes" else len(self.flat)


class Row(NamedTuple):
    """The least time of each contender, in microseconds per leaf or per megabyte."""

    backend: str
    axis: str
    size: int
    microseconds: dict[str, float]


class Growth:
    """The measurements under one framework."""

    def __init__(self, name: str, rounds: int, largest: int, clock: Callable[[], float]) -> None:
        self.name = name
        self.rounds = rounds
        self.largest = largest
        self.clock = clock
        self.missing: dict[str, str] = {}  # why a contender has no figure

    def rows(self, axes: list[str]) -> Iterator[Row]:
        """A row for each size of each axis."""
        for case in self.cases(axes):
            print(f"{self.name}: {case.axis}, {case.size:,}", file=sys.stderr)
            seconds = self.least_times(self.contenders(case), f"{case.axis}, {case.size:,}")
            per_part = {name: time * 1e6 / case.parts for name, time in seconds.items()}
            yield Row(self.name, case.axis, case.size, per_part)

    def cases(self, axes: list[str]) -> Iterator[Case]:
        """All cases that fit; tensors are made when they are needed."""
        here, there = xdevice.gpu(0), xdevice.gpu(1)
        for number in self.sizes("leaves", LEAVES, axes):
            flat = small_tensors([here] * number)
            yield Case("leaves", number, flat, flat, there)
        for depth in self.sizes("depth", DEPTHS, axes):
            flat = small_tensors([here] * depth)
            yield Case("depth", depth, nested(flat), flat, there)
        for number in self.sizes("devices", DEVICES, axes):
            if number <= xdevice.count("gpu"):
                places = [xdevice.gpu(i % number) for i in range(LEAVES_ON_DEVICES)]
                flat = small_tensors(places)
                yield Case("devices", number, flat, flat, xdevice.cpu())
        for nbytes in self.sizes("bytes", SIZES, axes):
            if fits(nbytes):
                x = xdevice.ones(nbytes // 4, dtype="float32", device=here)
                yield Case("bytes", nbytes, x, [x], there)

    def sizes(self, axis: str, sizes: tuple[int, ...], axes: list[str]) -> list[int]:
        """Those to measure."""
        largest = self.largest
        if axis == "bytes":
            largest *= 10_000
        return [size for size in sizes if axis in axes and size <= largest]

    def contenders(self, case: Case) -> dict[str, Callable[[], object]]:
        """The ways to move the tree."""
        framework = vars(xdevice.backend().framework)
        statement = NATIVE[self.name]["move"]
        native = function(loop_of(statement), framework, case)
        calls = {
            "by hand": native,
            "xdevice": lambda: xdevice.to_device(case.tree, case.destination),
        }
        for name, peer in PEERS.items():
            if "move_tree" not in peer.calls or self.name not in peer.frameworks:
                continue
            try:
                names = vars(import_module(peer.module))
            except ImportError as error:
                self.missing[f"{name} under {self.name}"] = f"{error.name} is not installed"
            else:
                calls[name] = function(peer.calls["move_tree"], names, case)
        return calls

    def least_times(self, calls: dict[str, Callable[[], object]], title: str) -> dict[str, float]:
        """Seconds of each contender."""
        repeats: dict[str, int] = {}
        for name, call in calls.items():
            try:
                call()
                repeats[name] = max(1, round(SLICE / max(self.timed(call, 1), 1e-9)))
            except Exception as error:  # the others can still be measured
                reason = f"{type(error).__name__}: {error}".partition("\n")[0]
                self.missing[f"{name} under {self.name}, {title}"] = reason
        times_of: dict[str, list[float]] = {name: [] for name in repeats}
        generator = random.Random(0)
        for _ in range(self.rounds):
            for name in generator.sample(list(repeats), len(repeats)):
                times_of[name].append(self.timed(calls[name], repeats[name]))
        return {name: min(times) for name, times in times_of.items()}

    def timed(self, call: Callable[[], object], times: int) -> float:
        """Seconds of a call, with the copies that it starts."""
        began = self.clock()
        for _ in range(times):
            call()
        xdevice.synchronize()
        return (self.clock() - began) / times


def small_tensors(places: list[Device]) -> list[Any]:
    return [xdevice.ones(4, dtype="float32", device=device) for device in places]


def nested(flat: list[Any]) -> Any:
    """The tensors in dicts, each in the one before."""
    tree: Any = None
    for x in flat:
        tree = {"x": x, "rest": tree}
    return tree


def fits(nbytes: int) -> bool:
    """Whether the memory holds the tensor and its copies in the turn of a contender."""
    _, free = machine.host_memory()
    return free is None or 4 * nbytes < free


def loop_of(statement: str) -> str:
    """A loop over the flat list that keeps what the statement moves."""
    context, _, moved = statement.rpartition(": ")
    append = f"{context}: moved.append({moved})".removeprefix(": ")
    return f"moved = []\n    for x in flat:\n        {append}"


def function(statement: str, names: dict[str, Any], case: Case) -> Callable[[], object]:
    """The statement as a function of no arguments."""
    variables = {
        **names,
        "flat": case.flat,
        "tree": case.tree,
        "there": xdevice.native(case.destination),
    }
    exec(f"def call():\n    {statement}", variables)
    call: Callable[[], object] = variables["call"]
    return call


def table(rows: list[Row]) -> str:
    """The table in Markdown."""
    others = list(dict.fromkeys(name for row in rows for name in row.microseconds))[1:]
    lines = [["framework", "grows", "size", "by hand, µs", *others]]
    lines.append(["---", "---", "---:", *["---:"] * (len(others) + 1)])
    for row in rows:
        by_hand = row.microseconds["by hand"]
        cells = [f"{by_hand:,.2f}"]
        for name in others:
            time = row.microseconds.get(name)
            cells.append("–" if time is None else f"{time / by_hand:.2f}")
        lines.append([row.backend, row.axis, f"{row.size:,}", *cells])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def flatness(rows: list[Row]) -> Iterator[str]:
    """How much longer a leaf takes at the largest size than at the best one."""
    for backend, axis in dict.fromkeys((row.backend, row.axis) for row in rows):
        series = [row for row in rows if (row.backend, row.axis) == (backend, axis)]
        parts = []
        for name in series[-1].microseconds:
            times = [row.microseconds[name] for row in series if name in row.microseconds]
            parts.append(f"{name} {times[-1] / min(times):.2f}")
        yield f"{backend}, {axis}, time at the last size / the least: {'; '.join(parts)}"


def plot(rows: list[Row], file: Path) -> None:
    """The time per leaf, or per megabyte, over what grows."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams["svg.hashsalt"] = "growth"  # the same figures make the same file
    first = rows[0].backend
    figure = Figure(figsize=(10, 7), layout="constrained")
    for axis, axes in zip(AXES, figure.subplots(2, 2).flat, strict=True):
        curves: dict[str, list[tuple[int, float]]] = {}
        for row in rows:
            if (row.backend, row.axis) == (first, axis):
                for name, time in row.microseconds.items():
                    curves.setdefault(name, []).append((row.size, time))
        for name, points in curves.items():
            axes.semilogx(*zip(*points, strict=True), marker="o", label=name)
        axes.set_ylim(bottom=0)
        unit = "megabyte" if axis == "bytes" else "leaf"
        axes.set(xlabel=AXES[axis], ylabel=f"µs per {unit}")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    figure.suptitle(f"to_device under {first}")
    figure.savefig(file, metadata={"Date": None})


def main() -> None:
    backends = [name for name in xdevice.available() if name in NATIVE and name != "numpy"]
    parser = argparse.ArgumentParser(description="How the time of to_device grows.")
    parser.add_argument("--backend", default="torch", help=f"one of {', '.join(backends)}")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--axis", choices=AXES, action="append", help="only this; several times")
    parser.add_argument("--virtual", type=int, default=64, metavar="N", help="virtual GPUs")
    parser.add_argument(
        "--largest",
        type=int,
        default=100_000,
        metavar="N",
        help="leaves of a tree; 10 kB for each in one tensor",
    )
    help_on_clock = "count the processor's time, not the clock's: beside other work"
    parser.add_argument("--processor-time", action="store_true", help=help_on_clock)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure there")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw it there")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error(f"--rounds {options.rounds} measures nothing; at least 1")
    try:
        with xdevice.using(options.backend):
            if not machine.gpus()["gpus"]:
                xdevice.virtual_gpus(options.virtual)
            clock = process_time if options.processor_time else perf_counter
            growth = Growth(options.backend, options.rounds, options.largest, clock)
            rows = list(growth.rows(options.axis or list(AXES)))
    except xdevice.XDeviceError as error:
        parser.error(str(error))
    print(table(rows))
    print()
    print("\n".join(flatness(rows)))
    print("\n".join(f"no figure for {name}: {reason}" for name, reason in growth.missing.items()))
    if options.json:
        options.json.write_text(json.dumps([row._asdict() for row in rows], indent=1), "utf-8")
    if options.plot:
        plot(rows, options.plot)


if __name__ == "__main__":
    main()
