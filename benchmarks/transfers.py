"""What copies cost, and what hides them: single, many at once, ahead of computing; and what it costs to watch them.

    python benchmarks/transfers.py --backend torch,jax --rounds 11 --plot transfers.svg --markdown
    XDEVICE_VIRTUAL_BUS=16GB/s,10us python benchmarks/transfers.py --backend torch

On a real GPU where there is one, else on a virtual one, whose copies are copies in the host's memory. As in
`overhead.py`, the contenders take turns in an order shuffled anew in each round, and a ratio is the median over the
rounds' own ratios: to the framework's own call, or to what the section says.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from contenders import NATIVE
from report import quartiles_of_ratio

import xdevice
from xdevice import machine
from xdevice.kit.units import size as written
from xdevice.parallel.vectors import moved, packs_of
from xdevice.virtual import bus as buses

SIZES = [4 * 16**k for k in range(7)] + [2**30]
"""4 B, 64 B, …, 64 MiB, and 1 GiB."""

MANY = (4, 16, 64)
"""Numbers of tensors that are sent one by one, or as one vector."""

SLICE = 2e-3
"""Seconds for which a contender is repeated between two looks at the clock."""

LENET = {"W1": (20, 1, 3, 3), "b1": (20,), "W2": (50, 20, 5, 5), "b2": (50,),
         "W3": (800, 128), "b3": (128,), "W4": (128, 10), "b4": (10,)}  # fmt: skip

Call = Callable[[], Any]


class Row(NamedTuple):
    """One contender's seconds, round by round, and its ratio to the first contender of the row's section and size."""

    backend: str
    section: str
    nbytes: int
    contender: str
    seconds: list[float]
    ratio: list[float]  # its quartiles


class Bench:
    """The measurements under one framework."""

    def __init__(self, name: str, rounds: int, largest: int) -> None:
        self.name, self.rounds, self.largest = name, rounds, largest
        self.gpu, self.missing = xdevice.gpu(0), dict[str, str]()

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
        """The contenders in turn; what fails is missing, with the reason."""
        print(f"{self.name}: {section}, {written(nbytes)}", file=sys.stderr)
        repeats: dict[str, int] = {}
        for who, call in contenders.items():
            try:
                call()
                repeats[who] = max(1, round(SLICE / max(timed(call, 1), 1e-9)))
            except Exception as error:  # the others can still be measured
                self.missing[f"{who}, {section}, under {self.name}"] = (
                    f"{type(error).__name__}: {error}".split("\n")[0]
                )
        taken: dict[str, list[float]] = {who: [] for who in repeats}
        shuffled = random.Random(0)
        for _ in range(self.rounds):
            for who in shuffled.sample(list(repeats), len(repeats)):
                taken[who].append(timed(contenders[who], repeats[who]))
        base = next(iter(taken.values()), None)
        for who, seconds in taken.items():
            ratio = [each or 0.0 for each in quartiles_of_ratio(seconds, base)]
            yield Row(self.name, section, nbytes, who, seconds, ratio)

    def one(self, x: Any, there: Any) -> dict[str, Call]:
        """A tensor, from where it is."""
        source = np.ones(x.shape, "float32")
        target = np.empty_like(source)
        native = NATIVE[self.name]["to_device"]
        contenders = {"native": self.call(native, x, xdevice.native(there), vars(xdevice.backend().framework)),
                      "to_device": self.call("to_device(x, here)", x, there, vars(xdevice)),
                      "limit: memcpy": lambda: np.copyto(target, source)}  # fmt: skip
        if there.kind != "cpu" and hasattr(x, "pin_memory"):
            try:
                pinned = x.pin_memory()
                statement = "to_device(x, here, non_blocking=True)"
                contenders["to_device, pinned"] = self.call(statement, pinned, there, vars(xdevice))
            except RuntimeError as error:  # there is no GPU, and virtual ones do not stand in
                self.missing[f"pinned memory under {self.name}"] = str(error).split(
                    "\n", maxsplit=1
                )[0]
        return contenders

    def call(self, statement: str, x: Any, here: Any, names: dict[str, Any]) -> Call:
        """The statement as a function, followed by the framework's own way to wait for a copy."""
        default = "" if xdevice.properties(self.gpu)["virtual"] else "; wait_for(gpu)"
        own = {**names, "x": x, "here": here, "wait_for": xdevice.synchronize, "gpu": self.gpu}
        exec(f"def call():\n    {statement}{NATIVE[self.name].get('wait', default)}", own)
        call: Call = own["call"]
        return call

    def many(self, number: int, nbytes: int) -> dict[str, Call]:
        """So many tensors of so many bytes each: moved one by one, and as one vector."""
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
        """A product with each of some batches, which come from the host."""
        batches = [xdevice.tensor(batch) for batch in self.batches()]
        batches = [xdevice.to_device(batch, "cpu") for batch in batches]
        there = [xdevice.to_device(batch, self.gpu) for batch in batches]
        w = xdevice.rand((64, batches[0].shape[0]), device=self.gpu)

        def epoch(loader: Callable[[], Any]) -> Call:
            def run() -> Any:
                with self.gpu:
                    for batch in loader():
                        kept = w @ batch
                    return waited(kept)

            return run

        contenders = {
            "to_device": epoch(lambda: (xdevice.to_device(batch, self.gpu) for batch in batches)),
            "prefetch": epoch(lambda: xdevice.prefetch(batches, self.gpu)),
            "limit: there already": epoch(lambda: there),
        }
        for who, make in peers(batches, xdevice.native(self.gpu)).items():
            try:
                if self.name != "torch":
                    raise NotImplementedError("it loads for torch only")
                contenders[who] = epoch(make())
            except (ImportError, NotImplementedError) as error:
                reason = (
                    f"{error.name} is not installed"
                    if isinstance(error, ImportError)
                    else str(error)
                )
                self.missing[f"{who} under {self.name}"] = reason
        return contenders

    def watching(self) -> dict[str, Call]:
        """A step of the lesson's network, with nothing watched and within a block."""
        loss = import_module(f"scaling_native.{self.name}").loss
        numbers = np.random.default_rng(0)
        with self.gpu:
            params = {
                k: xdevice.tensor(numbers.random(s, "float32") / 100, device=self.gpu)
                for k, s in LENET.items()
            }
            x = xdevice.tensor(numbers.random((32, 1, 28, 28), "float32"), device=self.gpu)
            y = xdevice.tensor(numbers.integers(0, 10, (32, 1)), device=self.gpu)
        gradients = xdevice.value_and_grad(loss)

        def step() -> Any:
            with self.gpu:
                _, found = gradients(params, x, y)
                return waited({name: w - 0.1 * found[name] for name, w in params.items()})

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
    """The result, once the GPU has it: JAX and MXNet return before."""
    xdevice.synchronize()
    return result


def timed(call: Call, times: int) -> float:
    """Seconds of a call."""
    began = perf_counter()
    for _ in range(times):
        call()
    return (perf_counter() - began) / times


def table(rows: list[Row], markdown: bool) -> str:
    """A line for each contender of each section and size."""
    lines = [["framework", "", "bytes each", "contender", "µs", "ratio", "GB/s"]]
    for row in rows:
        low, middle, high = row.ratio
        seconds = median(row.seconds)
        rate = f"{row.nbytes / seconds / 1e9:.3g}" if row.section.startswith("to ") else ""
        lines.append([row.backend, row.section, written(row.nbytes) if row.nbytes else "", row.contender,
                      f"{seconds * 1e6:,.1f}", f"{middle:.2f} ± {(high - low) / 2:.2f}", rate])  # fmt: skip
    if markdown:
        lines.insert(1, ["---", "---", "---:", "---", "---:", "---:", "---:"])
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in lines
    )


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
    others = [row for row in rows if not row.section.startswith("to ") and row.ratio[1] != 1]
    labels = [
        f"{r.backend}: {r.section}{f', {written(r.nbytes)}' if r.nbytes else ''}, {r.contender}"
        for r in others
    ]
    ratios.barh(labels[::-1], [row.ratio[1] for row in others][::-1])
    ratios.axvline(1, color="black", linewidth=0.8)
    ratios.set_title("time, beside the first contender's")
    ratios.tick_params(axis="y", labelsize=6)
    figure.savefig(file)


def main() -> None:
    able = [name for name in xdevice.available() if name in NATIVE and name != "numpy"]
    parser = argparse.ArgumentParser(description="What copies cost, and what hides them.")
    parser.add_argument(
        "--backend", default=",".join(able), help="a,b,c; all that are installed and have GPUs"
    )
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--quick", action="store_true", help="two rounds, and at most 64 KiB")
    parser.add_argument("--largest", type=int, default=2**30, metavar="BYTES", help="of one tensor")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure there")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw it there")
    parser.add_argument(
        "--markdown", action="store_true", help="print the table as docs/project/costs.md has it"
    )
    asked = parser.parse_args()
    if asked.rounds < 2:
        parser.error(f"--rounds {asked.rounds} gives no spread; at least 2")
    rows, missing = list[Row](), dict[str, str]()
    try:
        for name in dict.fromkeys(asked.backend.split(",")):
            with xdevice.using(name):
                if not machine.gpus()["gpus"]:
                    xdevice.virtual_gpus(1)
                bench = Bench(
                    name,
                    2 if asked.quick else asked.rounds,
                    2**16 if asked.quick else asked.largest,
                )
                rows += bench.run()
                missing |= bench.missing
                device = xdevice.properties(bench.gpu)["name"]
    except xdevice.XDeviceError as error:
        parser.error(str(error))
    print(table(rows, asked.markdown))
    print(
        f"\non {device}; "
        + (f"bus: {buses.requested()}" if buses.requested() else "no bus is stated")
    )
    print("\n".join(f"no figure for {who}: {why}" for who, why in missing.items()))
    if asked.json:
        asked.json.write_text(
            json.dumps([row._asdict() for row in rows], indent=1), encoding="utf-8"
        )
    if asked.plot:
        plot(rows, asked.plot)


if __name__ == "__main__":
    main()
