"""When does a GPU pay? The experiments of the lesson and the articles, timed on the CPU and on the GPU.

    XDEVICE_BACKEND=torch python examples/cpu_or_gpu.py          all of them, at a tenth of their size
    python examples/cpu_or_gpu.py large transfer --scale 1       two of them, whole
    python examples/cpu_or_gpu.py --plot times.png               and a picture

What they show: large work is far faster on a GPU, and tiny work is not; what computing there saves,
copying there and back each time loses; many small transfers cost more than one. Every clock is read
with all devices waited for: otherwise it measures how fast work is queued.
"""

import argparse
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import native
import numpy as np
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TimeElapsedColumn
from rich.table import Table

import xdevice
from xdevice import Device, to_numpy


@dataclass
class Work:
    """One line of a table: ``run(times)`` does the work that many times, after ``warm_up`` uncounted."""

    label: str
    times: int
    run: Callable[[int], object]
    warm_up: int = 1
    seconds: float = math.nan


def elementwise(device: Device, scale: float) -> Iterator[Work]:
    """result += a * b on large tensors"""
    shape, times = (sized(100, scale), 1000, 1000), sized(1000, scale)
    for name, where in sides(device):
        a, b = random(shape, where), random(shape, where)
        yield Work(f"{shape[0]} × 1000 × 1000 on {name}", times, accumulation(a, b))


def large(device: Device, scale: float) -> Iterator[Work]:
    """a @ b of large matrices"""
    size = sized(10_000, scale)
    for name, where in sides(device):
        a, b = random((size, size), where), random((size, size), where)
        yield Work(f"{size} × {size} on {name}", 10, products(a, b))


def tiny(device: Device, scale: float) -> Iterator[Work]:
    """a @ b of tiny matrices"""
    for name, where in sides(device):
        a, b = random((10, 10), where), random((10, 10), where)
        yield Work(f"10 × 10 on {name}", sized(10_000, scale), products(a, b))


def transfer(device: Device, scale: float) -> Iterator[Work]:
    """a @ b of 200 × 200: where are the operands?"""
    a, b = np.random.default_rng(0).random((2, 200, 200), dtype="float32")
    times = sized(10_000, scale)
    yield Work("in NumPy", times, products(a, b))
    yield Work("on the device", times, products(*sent(a, b, device)))
    yield Work("sent there and back each time", times, round_trips(a, b, device))


def log(device: Device, scale: float) -> Iterator[Work]:
    """Frobenius norms of products of 100 × 100, logged"""
    a, b = random((100, 100), device), random((100, 100), device)
    times = sized(1000, scale)
    yield Work("fetched one by one", times, fetching(a, b), warm_up=times)
    yield Work("kept on the device, fetched together", times, keeping(a, b), warm_up=times)


EXPERIMENTS = {experiment.__name__: experiment for experiment in (elementwise, large, tiny, transfer, log)}


def accumulation(a, b):
    def run(times):
        result = a * b
        for _ in range(times):
            result += a * b

    return run


def products(a, b):
    def run(times):
        for _ in range(times):
            a @ b

    return run


def round_trips(a, b, device):
    def run(times):
        for _ in range(times):
            x, y = sent(a, b, device)
            to_numpy(x @ y)

    return run


def fetching(a, b):
    def run(times):
        return [to_numpy(native.norm(a @ b)).item() for _ in range(times)]

    return run


def keeping(a, b):
    def run(times):
        norms = [native.norm(a @ b) for _ in range(times)]
        return to_numpy(native.stack(norms)).tolist()

    return run


def sides(device):
    return ("the CPU", xdevice.cpu()), ("the device", device)


def sent(a, b, device):
    return xdevice.tensor(a, device=device), xdevice.tensor(b, device=device)


def random(shape, device):
    return xdevice.rand(shape, dtype="float32", device=device)


def sized(whole, scale):
    """A size or number of times of the lesson, scaled; 1 at least."""
    return max(1, round(whole * scale))


def main() -> None:
    options = parse_arguments()
    console = Console()
    device = xdevice.as_device(options.device) if options.device else xdevice.try_gpu()
    console.print(f"{xdevice.backend()}; the device is {device}; scale {options.scale:g}", highlight=False)
    if device.kind == "cpu":
        console.print("this is no GPU: what is compared with the CPU is the CPU itself")
    done = {}
    for name in options.experiments or EXPERIMENTS:
        experiment = EXPERIMENTS[name]
        done[experiment.__doc__] = [timed(work, name) for work in experiment(device, options.scale)]
        console.print(table(experiment.__doc__, done[experiment.__doc__]))
    if options.plot:
        plot(done, options.plot)
        console.print(f"drawn in {options.plot}", highlight=False)


def timed(work: Work, experiment: str) -> Work:
    """The work with its seconds, of which loading and compiling what it needs is no part."""
    columns = SpinnerColumn(), "{task.description}", TimeElapsedColumn()
    terminal = Console(stderr=True)
    with Progress(*columns, console=terminal, transient=True, disable=not terminal.is_terminal) as progress:
        progress.add_task(f"{experiment}: {work.label}, {work.times} times")
        work.run(work.warm_up)
        timer = xdevice.Timer()
        work.run(work.times)
        work.seconds = timer.stop()
    return work


def table(title: str, works: list[Work]) -> Table:
    made = Table(title=title, title_justify="left")
    made.add_column("what", min_width=36)
    for heading in ("times", "seconds", "µs each", "speed"):
        made.add_column(heading, justify="right", min_width=7)
    for work in works:
        each, speed = 1e6 * work.seconds / work.times, works[0].seconds / work.seconds
        made.add_row(work.label, str(work.times), f"{work.seconds:.3f}", f"{each:.1f}", f"{speed:.2f} ×")
    return made


def plot(done: dict[str, list[Work]], file: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 1.6 * len(done) + 0.6), layout="constrained")
    figure.suptitle(f"{xdevice.backend()}: time of one piece of work")
    for axes, (title, works) in zip(figure.subplots(len(done), squeeze=False)[:, 0], done.items(), strict=True):
        rows = range(len(works))
        microseconds = [1e6 * work.seconds / work.times for work in works]
        axes.bar_label(axes.barh(rows, microseconds), fmt="%.1f", padding=3)
        axes.set_yticks(rows, [work.label for work in works])
        axes.set(title=title, xlabel="microseconds")
        axes.margins(x=0.15)
        axes.invert_yaxis()
    figure.savefig(file, dpi=120)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Time the same work on the CPU and on the GPU, under any framework.",
        epilog="experiments: " + "; ".join(f"{name} – {run.__doc__}" for name, run in EXPERIMENTS.items()),
    )
    parser.add_argument("experiments", nargs="*", type=experiment, metavar="EXPERIMENT", help="by name; all if none")
    parser.add_argument("--scale", type=scale, default=0.1, help="1 is the lesson's own size (default %(default)s)")
    parser.add_argument("--device", help="what to compare with the CPU (default: the first GPU, else the CPU)")
    parser.add_argument("--plot", type=picture, metavar="FILE", help="draw the times: a .png, .svg or .pdf")
    return parser.parse_args()


def experiment(name: str) -> str:
    if name not in EXPERIMENTS:
        raise argparse.ArgumentTypeError(f"no experiment {name!r}; there are {', '.join(EXPERIMENTS)}")
    return name


def scale(text: str) -> float:
    number = float(text)
    if not 0 < number <= 10:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 10; 1 is the lesson's own size")
    return number


def picture(name: str) -> Path:
    file = Path(name)
    if file.suffix not in (".png", ".svg", ".pdf"):
        raise argparse.ArgumentTypeError(f"{name!r} is no .png, .svg or .pdf")
    if not file.parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {str(file.parent)!r} to draw in")
    return file


if __name__ == "__main__":
    try:
        main()
    except xdevice.XDeviceError as error:
        raise SystemExit(f"cpu_or_gpu.py: {error}") from error
    except Exception as error:
        if not xdevice.is_out_of_memory(error):
            raise
        raise SystemExit("cpu_or_gpu.py: out of memory; give a smaller --scale") from error
