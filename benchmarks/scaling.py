"""What training on two devices and in two processes brings, beside each framework's own way.

    python benchmarks/scaling.py --backend torch,jax --rounds 25
        samples per second, and their ratios

The lesson's LeNet is trained with plain gradient descent on 64 images for each
device or process, whose threads compute one operation at a time. One job of
two processes, each on its own core, runs all contenders; so does one process
with two devices. They take turns, in an order that is shuffled anew in each
round. A ratio is the median of the rounds' ratios, with half the distance
between the quartiles: a disturbance of the machine slows all contenders alike.
CPU time is that of the first process; a process that waits takes none. Before
the rounds each contender takes one step, and all must come to the same
parameters.

"Apart" are two processes that do not communicate: the limit that the machine
sets. In "1 process" the other process waits. "xdevice" trains the framework's
own network, as "native" does; "lesson" trains the lesson's network, which is
written with `namespace`. The frameworks' own ways are in scaling_native/.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import xdevice

HERE = Path(__file__).parent
ONE_THREAD = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "TF_NUM_INTRAOP_THREADS",
    "MXNET_CPU_WORKER_NTHREADS",
)
TWO_THREADS = ("TF_NUM_INTEROP_THREADS",)  # for two devices
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2", "JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}

# The number of processes of each job
JOBS = {"processes": 2, "devices": 1}

# The table's rows of each job: what it runs on, then the native contender and xdevice's
ROWS = {
    "processes": {
        "1 process": ("native, 1", "xdevice, 1"),
        "1 process, the lesson's network": ("native, 1", "lesson, 1"),
        "2 processes apart": ("native, apart", "xdevice, apart"),
        "2 processes": ("native, 2", "xdevice, 2"),
    },
    "devices": {
        "1 device": ("native, 1", "xdevice, 1"),
        "2 devices apart": ("native, apart", "xdevice, apart"),
        "2 devices": ("native, 2", "xdevice, 2"),
    },
}
HEAD = (
    "framework",
    "on",
    "native, samples/s",
    "xdevice, samples/s",
    "xdevice / native",
    "the same of CPU time",
    "native, × 1",
    "xdevice, × 1",
)

Rates: TypeAlias = dict[str, dict[str, list[float]]]
"""Each contender's samples per second, round by round.

"wall" has those per second of the clock, "cpu" those per second of rank 0's CPU time.
"""


def measured(backend: str, job: str, rounds: int, seconds: float) -> Rates:
    """The rates that one job of real processes has measured."""
    print(f"{backend}: {job}", file=sys.stderr)
    with TemporaryDirectory() as folder:
        file = Path(folder, "rates.json")
        arguments = [job, rounds, seconds, file]
        options = ["--time-limit", str(round(120 + 40 * rounds * seconds))]
        if JOBS[job] > 1:
            options += ["--pin"]
        launched("scaling_worker.py", arguments, JOBS[job], backend, options)
        rates: Rates = json.loads(file.read_text(encoding="utf-8"))
    return rates


def launched(
    script: str, arguments: list[Any], processes: int, backend: str, options: list[str]
) -> str:
    """What the processes have printed on stdout; `SystemExit` with their stderr if they fail."""
    launcher = [sys.executable, "-m", "xdevice", "launch"]
    launcher += ["-n", str(processes), "--backend", backend, *options]
    environment = {
        **os.environ,
        **QUIET,
        **dict.fromkeys(ONE_THREAD, "1"),
        **dict.fromkeys(TWO_THREADS, "2"),
    }
    process = subprocess.run(
        [*launcher, str(HERE / script), *map(str, arguments)],
        env=environment,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    if process.returncode != 0:
        raise SystemExit(f"{backend}: {script} {arguments[0]} failed\n{process.stderr[-3000:]}")
    return process.stdout


# The table


def rows(backend: str, rates_of_jobs: dict[str, Rates]) -> list[list[str]]:
    lines = []
    for job, contenders in ROWS.items():
        wall = rates_of_jobs[job]["wall"]
        cpu = rates_of_jobs[job]["cpu"]
        for place, (native, xdevices) in contenders.items():
            if xdevices not in wall:
                continue
            line = [
                backend,
                place,
                rate(wall.get(native)),
                rate(wall.get(xdevices)),
                ratio(wall.get(xdevices), wall.get(native)),
                ratio(cpu.get(xdevices), cpu.get(native)),
                ratio(wall.get(native), wall["native, 1"]),
                ratio(wall.get(xdevices), wall["xdevice, 1"]),
            ]
            lines.append(line)
    return lines


def rate(rates: list[float] | None) -> str:
    return f"{median(rates):,.0f}" if rates else "–"


def ratio(rates: list[float] | None, base: list[float] | None) -> str:
    if not rates or not base:
        return "–"
    of_rounds = [a / b for a, b in zip(rates, base, strict=True)]
    if len(of_rounds) == 1:
        return f"{of_rounds[0]:.2f}"
    low, middle, high = quantiles(of_rounds, n=4, method="inclusive")
    return f"{middle:.2f} ± {(high - low) / 2:.2f}"


def main() -> None:
    options = parsed()
    results: dict[str, dict[str, Rates]] = {}
    print("| " + " | ".join(HEAD) + " |\n| --- | --- |" + " ---: |" * (len(HEAD) - 2))
    for name in dict.fromkeys(options.backend.split(",")):
        results[name] = {job: measured(name, job, options.rounds, options.seconds) for job in JOBS}
        for line in rows(name, results[name]):
            print("| " + " | ".join(line) + " |", flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1), encoding="utf-8")


def parsed() -> argparse.Namespace:
    ways = {path.stem for path in (HERE / "scaling_native").glob("[a-z]*.py")}
    names = [name for name in xdevice.available() if name in ways]
    parser = argparse.ArgumentParser(
        description="What two devices and two processes bring, beside the native ways."
    )
    parser.add_argument(
        "--backend",
        default=",".join(names),
        help="a,b,c; all that are installed and have gradients",
    )
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--seconds", type=float, default=0.2, help="of each turn")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure there")
    options = parser.parse_args()
    unknown = [name for name in options.backend.split(",") if name not in names]
    if unknown:
        parser.error(f"no native way for {', '.join(unknown)}; there are {', '.join(names)}")
    if options.rounds < 1 or options.seconds <= 0:
        parser.error("--rounds is 1 or more, and --seconds above 0")
    if find_spec("sklearn") is None:
        parser.error("the lesson needs scikit-learn; pip install -r benchmarks/requirements.txt")
    return options


if __name__ == "__main__":
    main()
