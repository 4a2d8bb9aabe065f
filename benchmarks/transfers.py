"""The time of copies: of one tensor, of many, and of copies that overlap with computations.

    python benchmarks/transfers.py --backend torch,jax --rounds 11 --plot transfers.svg --markdown
    XDEVICE_VIRTUAL_BUS=16GB/s,10us python benchmarks/transfers.py --backend torch

The last section measures the overhead of `watch_transfers`. The script uses a
real GPU if there is one, else a virtual one, whose copies are copies in the
host's memory. As in `overhead.py`, the contenders take turns in a new random
order in each round. A ratio is the median over the rounds' ratios to the
framework's own call, or to the contender that the section says.

Beside other work on the machine, `--processor-time` with `OMP_NUM_THREADS=1`
counts the processor's time, and a ratio is that of the least times.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import deque
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from contenders import NATIVE
from report import quartiles_of_ratio

import xdevice
from xdevice import Device, machine
from xdevice.parallel.vectors import moved, packs_of
from xdevice.units import size as written
from xdevice.virtual import bus as buses

SIZES = [4 * 16**k for k in range(7)] + [2**30]
"""4 B, 64 B, …, 64 MiB, and 1 GiB."""

MANY = (4, 16, 64)
"""Numbers of tensors that are sent one by one, or as one vector."""

SLICE = 2e-3
"""Seconds for which a contender is repeated between two readings of the clock."""

LENET = {
    "W1": (20, 1, 3, 3),
    "b1": (20,),
    "W2": (50, 20, 5, 5),
    "b2": (50,),
    "W3": (800, 128),
    "b3": (128,),
    "W4": (128, 10),
    "b4": (10,),
}

Tensor: TypeAlias = Any
Call: TypeAlias = Callable[[], Any]


class Row(NamedTuple):
    """One contender's seconds, round by round.

    The ratio is that to the first contender of the same section and size.
    """

    backend: str
    section: str
    nbytes: int
    contender: str
    seconds: list[float]
    ratio: list[float]  # its quartiles; with the processor's time, three times that of the least


class Bench:
    """The measurements under one framework."""

    def __init__(self, name: str, options: argparse.Namespace) -> None:
        self.name = name
        self.rounds: int = options.rounds
        self.least: bool = options.processor_time
        self.clock = process_time if options.processor_time else perf_counter
        self.sections: str = options.select
        self.largest: int = options.largest  # bytes of one tensor
        self.gpu = xdevice.gpu(0)
        self.missing: dict[str, str] = {}  # why a contender has no figure

    def run(self) -> Iterator[Row]:
        """All rows."""
        for nbytes in [size for size in SIZES if size <= self.largest]:
            x = xdevice.ones(nbytes // 4, dtype="float32", device="cpu")
            y = xdevice.to_device(x, self.gpu)
            yield from self.rows("to the GPU", nbytes, self.one(x, self.gpu))
            yield from self.rows("to the host", nbytes, self.one(y, xdevice.cpu()))
        for number in MANY:
            for nbytes in (4, 2**10, 2**14, 2**16, 2**18):
                yield from self.rows(f"{number} tensors", nbytes, self.many(number, nbytes))
        yield from self.rows("steps with batches", self.batches()[0].nbytes, self.loaders())
        yield from self.rows("LeNet step", 0, self.watching())

    def rows(self, section: str, nbytes: int, contenders: dict[str, Call]) -> Iterator[Row]:
        """Measure the contenders in turn. One that fails has no row; `missing` has the reason."""
        if self.sections not in section:
            return
        print(f"{self.name}: {section}, {written(nbytes)}", file=sys.stderr)
        repeats: dict[str, int] = {}
        for name, call in contenders.items():
            try:
                call()
                repeats[name] = max(1, round(SLICE / max(self.timed(call, 1), 1e-9)))
            except Exception as error:  # the others can still be measured
                reason = first_line(f"{type(error).__name__}: {error}")
                self.missing[f"{name}, {section}, under {self.name}"] = reason
        times_of: dict[str, list[float]] = {name: [] for name in repeats}
        generator = random.Random(0)
        for _ in range(self.rounds):
            for name in generator.sample(list(repeats), len(repeats)):
                times_of[name].append(self.timed(contenders[name], repeats[name]))
        base = next(iter(times_of.values()), None)
        for name, times in times_of.items():
            if self.least and base:
                ratio = [min(times) / min(base)] * 3
            else:
                ratio = [quartile or 0.0 for quartile in quartiles_of_ratio(times, base)]
            yield Row(self.name, section, nbytes, name, times, ratio)

    def timed(self, call: Call, times: int) -> float:
        """Seconds of a call."""
        began = self.clock()
        for _ in range(times):
            call()
        return (self.clock() - began) / times

    def one(self, x: Tensor, destination: Device) -> dict[str, Call]:
        """Copies of one tensor."""
        source = np.ones(x.shape, "float32")
        target = np.empty_like(source)
        statement = NATIVE[self.name]["to_device"]
        native_destination = xdevice.native(destination)
        framework = vars(xdevice.backend().framework)
        contenders = {
            "native": self.call(statement, x, native_destination, framework),
            "to_device": self.call("to_device(x, here)", x, destination, vars(xdevice)),
            "limit: memcpy": lambda: np.copyto(target, source),
        }
        if destination.kind != "cpu" and hasattr(x, "pin_memory"):
            try:
                pinned = x.pin_memory()
            except RuntimeError as error:  # there is no GPU, and virtual ones do not stand in
                self.missing[f"pinned memory under {self.name}"] = first_line(str(error))
            else:
                statement = "to_device(x, here, non_blocking=True)"
                call = self.call(statement, pinned, destination, vars(xdevice))
                contenders["to_device, pinned"] = call
        return contenders

    def call(self, statement: str, x: Tensor, here: Any, names: dict[str, Any]) -> Call:
        """The statement as a function, followed by the framework's own way to wait for a copy."""
        wait = "; wait_for(gpu)"
        if xdevice.properties(self.gpu)["virtual"]:
            wait = ""
        wait = NATIVE[self.name].get("wait", wait)
        variables = {
            **names,
            "x": x,
            "here": here,
            "wait_for": xdevice.synchronize,
            "gpu": self.gpu,
        }
        exec(f"def call():\n    {statement}{wait}", variables)
        call: Call = variables["call"]
        return call

    def many(self, number: int, nbytes: int) -> dict[str, Call]:
        """Copies of several tensors of so many bytes each: one by one, and as one vector."""
        tensors = [xdevice.ones(nbytes // 4, dtype="float32", device="cpu") for _ in range(number)]

        def coalesced() -> Any:
            (pack,) = packs_of(tensors)
            return waited(pack.unpacked(moved(pack.packed(), pack.owner, self.gpu, False)))

        return {
            "one by one": lambda: waited(xdevice.to_device(tensors, self.gpu)),
            "as one vector": coalesced,
        }

    def batches(self) -> list[Any]:
        n = 1024 if self.largest > 2**20 else 256
        return [np.full((n, n), i / n, "float32") for i in range(16)]

    def loaders(self) -> dict[str, Call]:
        """Matrix products with batches that come from the host."""
        batches = [xdevice.tensor(batch) for batch in self.batches()]
        batches = [xdevice.to_device(batch, "cpu") for batch in batches]
        batches_on_gpu = [xdevice.to_device(batch, self.gpu) for batch in batches]
        w = xdevice.rand((64, batches[0].shape[0]), device=self.gpu)

        def epoch(loader: Callable[[], Any]) -> Call:
            def run() -> Any:
                with self.gpu:
                    for batch in loader():
                        product = w @ batch
                    return waited(product)

            return run

        def ahead() -> Iterator[Any]:
            queue: deque[Any] = deque()
            for batch in batches:
                queue.append(xdevice.to_device(batch, self.gpu))
                if len(queue) > 2:
                    yield queue.popleft()
            yield from queue

        contenders = {
            "to_device": epoch(lambda: (xdevice.to_device(batch, self.gpu) for batch in batches)),
            "to_device, two batches ahead": epoch(ahead),
            "prefetch": epoch(lambda: xdevice.prefetch(batches, self.gpu)),
            "limit: there already": epoch(lambda: batches_on_gpu),
        }
        for name, make_loader in peers(batches, xdevice.native(self.gpu)).items():
            if self.name != "torch":
                self.missing[f"{name} under {self.name}"] = "it loads for torch only"
                continue
            try:
                contenders[name] = epoch(make_loader())
            except ImportError as error:
                self.missing[f"{name} under {self.name}"] = f"{error.name} is not installed"
        return contenders

    def watching(self) -> dict[str, Call]:
        """Steps of the lesson's network, without and within `watch_transfers`."""
        loss = import_module(f"scaling_native.{self.name}").loss
        generator = np.random.default_rng(0)
        arrays = {name: generator.random(shape, "float32") / 100 for name, shape in LENET.items()}
        images = generator.random((32, 1, 28, 28), "float32")
        labels = generator.integers(0, 10, (32, 1))
        with self.gpu:
            params = {
                name: xdevice.tensor(array, device=self.gpu) for name, array in arrays.items()
            }
            x = xdevice.tensor(images, device=self.gpu)
            y = xdevice.tensor(labels, device=self.gpu)
        gradients = xdevice.value_and_grad(loss)

        def step() -> Any:
            with self.gpu:
                _, gradient_of = gradients(params, x, y)
                return waited({name: w - 0.1 * gradient_of[name] for name, w in params.items()})

        def steps() -> None:
            for _ in range(10):
                step()

        def watched() -> None:
            with xdevice.watch_transfers():
                steps()

        return {"off": steps, "off again": steps, "watch_transfers()": watched}


def peers(batches: list[Any], device: Any) -> dict[str, Callable[[], Callable[[], Any]]]:
    """Other libraries' loaders of the same batches."""

    def accelerate() -> Callable[[], Any]:
        from accelerate.data_loader import DataLoaderShard

        loader = DataLoaderShard(batches, device=device, batch_size=None)
        return lambda: loader

    def lightning() -> Callable[[], Any]:
        from lightning_fabric.wrappers import _FabricDataLoader
        from torch.utils.data import DataLoader

        loader = _FabricDataLoader(DataLoader(batches, batch_size=None), device)
        return lambda: loader

    return {"accelerate's loader": accelerate, "Lightning's loader": lightning}


def waited(result: Any) -> Any:
    """The result, once the GPU has computed it: calls of JAX and MXNet return earlier."""
    xdevice.synchronize()
    return result


def first_line(text: str) -> str:
    return text.partition("\n")[0]


def table(rows: list[Row], markdown: bool) -> str:
    """A line for each contender of each section and size."""
    lines = [["framework", "", "bytes each", "contender", "µs", "ratio", "GB/s"]]
    for row in rows:
        low, middle, high = row.ratio
        seconds = median(row.seconds)
        if low == high:  # that of the least times
            seconds = min(row.seconds)
        rate = ""
        if row.section.startswith("to "):
            rate = f"{row.nbytes / seconds / 1e9:.3g}"
        nbytes = ""
        if row.nbytes:
            nbytes = written(row.nbytes)
        time = f"{seconds * 1e6:,.1f}"
        ratio = f"{middle:.2f} ± {(high - low) / 2:.2f}"
        lines.append([row.backend, row.section, nbytes, row.contender, time, ratio, rate])
    if markdown:
        lines.insert(1, ["---", "---", "---:", "---", "---:", "---:", "---:"])
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(_padded(line, widths) for line in lines)


def _padded(cells: list[str], widths: list[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def plot(rows: list[Row], file: Path) -> None:
    """Rates over sizes, and the other sections' ratios."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.5), layout="constrained")
    rates, ratios = figure.subplots(1, 2)
    curves: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        if row.section == "to the GPU":
            point = row.nbytes, row.nbytes / median(row.seconds) / 1e9
            curves.setdefault(f"{row.backend}, {row.contender}", []).append(point)
    for label, points in curves.items():
        rates.loglog(*zip(*points, strict=True), marker="o", label=label)
    rates.set(xlabel="bytes", ylabel="GB/s", title="one tensor to the GPU")
    rates.legend(fontsize=7)
    compared = [row for row in rows if not row.section.startswith("to ") and row.ratio[1] != 1]
    compared.reverse()  # bars are drawn from below
    ratios.barh([_label(row) for row in compared], [row.ratio[1] for row in compared])
    ratios.axvline(1, color="black", linewidth=0.8)
    ratios.set_title("time, relative to the first contender's")
    ratios.tick_params(axis="y", labelsize=6)
    figure.savefig(file)


def _label(row: Row) -> str:
    words = [row.section, row.contender]
    if row.nbytes:
        words.insert(1, written(row.nbytes))
    return f"{row.backend}: {', '.join(words)}"


def main() -> None:
    backends = [name for name in xdevice.available() if name in NATIVE and name != "numpy"]
    parser = argparse.ArgumentParser(description="The time of copies, and of copies that overlap.")
    parser.add_argument(
        "--backend", default=",".join(backends), help="a,b,c; all that are installed and have GPUs"
    )
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--quick", action="store_true", help="two rounds, and at most 64 KiB")
    parser.add_argument("--largest", type=int, default=2**30, metavar="BYTES", help="of one tensor")
    help_on_clock = "count the processor's time, not the clock's, and compare the least times"
    parser.add_argument("--processor-time", action="store_true", help=help_on_clock)
    parser.add_argument(
        "--select", default="", metavar="TEXT", help="only the sections with this text"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure there")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw it there")
    parser.add_argument(
        "--markdown", action="store_true", help="print the table as validation/costs.md has it"
    )
    arguments = parser.parse_args()
    if arguments.rounds < 2:
        parser.error(f"--rounds {arguments.rounds} gives no spread; at least 2")
    rows: list[Row] = []
    missing: dict[str, str] = {}
    if arguments.quick:
        arguments.rounds = 2
        arguments.largest = 2**16
    try:
        for name in dict.fromkeys(arguments.backend.split(",")):
            with xdevice.using(name):
                if not machine.gpus()["gpus"]:
                    xdevice.virtual_gpus(1)
                bench = Bench(name, arguments)
                rows += bench.run()
                missing |= bench.missing
                device = xdevice.properties(bench.gpu)["name"]
    except xdevice.XDeviceError as error:
        parser.error(str(error))
    print(table(rows, arguments.markdown))
    bus = "no bus is stated"
    if buses.requested():
        bus = f"bus: {buses.requested()}"
    print(f"\non {device}; {bus}")
    print("\n".join(f"no figure for {name}: {reason}" for name, reason in missing.items()))
    if arguments.json:
        content = [row._asdict() for row in rows]
        arguments.json.write_text(json.dumps(content, indent=1), encoding="utf-8")
    if arguments.plot:
        plot(rows, arguments.plot)


if __name__ == "__main__":
    main()
