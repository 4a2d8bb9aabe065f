"""What training on two devices and in two processes brings, beside each framework's own way to do it.

    python benchmarks/scaling.py --backend torch,jax --rounds 25      samples per second, and their ratios
    python benchmarks/scaling.py --barrier                               what the barrier costs
    python benchmarks/scaling.py --model                              what 8, 64 and 1024 processes would cost

The lesson's LeNet is trained with plain gradient descent on 64 images for each device or process, whose threads
compute one operation at a time. One job of two processes, each on a core of its own, holds all contenders; so
does one process with two devices. They take turns, in an order shuffled anew in each round, and a ratio is the
median over the rounds' own ratios, with half the distance between the quartiles: what disturbs the machine
disturbs all alike. CPU time is that of the first process; who waits for the other takes none. Before that each
takes one step, and all must come to the same parameters.

"Apart" are two processes that tell each other nothing: what the machine has to give. In "1 process" the other one
waits. "xdevice" trains on the network in the framework's words, as "native" does; "lesson" on the network as the
lesson has it, on `namespace`. See scaling_native/ for the frameworks' own ways.
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
from typing import Any

from parts import scaling_barrier, scaling_model

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

JOBS = {"processes": 2, "devices": 1}  # and how many processes each has
ROWS = {  # of the table, for each job: what it is on, then who is native there and who is ours
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
    "framework", "on", "native, samples/s", "xdevice, samples/s", "xdevice / native", "the same of CPU time",
    "native, × 1", "xdevice, × 1",
)  # fmt: skip

Rates = dict[str, dict[str, list[float]]]
"""Samples per second ("wall"), and per second of rank 0's CPU time ("cpu"), of each contender, round by round."""


def measured(backend: str, job: str, rounds: int, seconds: float) -> Rates:
    """What one job of real processes has found."""
    print(f"{backend}: {job}", file=sys.stderr)
    with TemporaryDirectory() as folder:
        file = Path(folder, "rates.json")
        arguments = [job, rounds, seconds, file]
        limit = ["--time-limit", str(round(120 + 40 * rounds * seconds))]
        launched(
            "scaling_worker.py",
            arguments,
            JOBS[job],
            backend,
            [*limit, *(["--pin"] if JOBS[job] > 1 else [])],
        )
        found: Rates = json.loads(file.read_text(encoding="utf-8"))
    return found


def launched(
    script: str, arguments: list[Any], processes: int, backend: str, options: list[str]
) -> str:
    """What the processes have printed; an error with what they said if they fail."""
    command = [
        sys.executable,
        "-m",
        "xdevice",
        "launch",
        "-n",
        str(processes),
        "--backend",
        backend,
        *options,
    ]
    environment = {
        **os.environ,
        **QUIET,
        **dict.fromkeys(ONE_THREAD, "1"),
        **dict.fromkeys(TWO_THREADS, "2"),
    }
    done = subprocess.run(
        [*command, str(HERE / script), *map(str, arguments)],
        env=environment,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{backend}: {script} {arguments[0]} failed\n{done.stderr[-3000:]}")
    return done.stdout


# The table


def rows(backend: str, found: dict[str, Rates]) -> list[list[str]]:
    lines = []
    for job, contenders in ROWS.items():
        wall, cpu = found[job]["wall"], found[job]["cpu"]
        for where, (native, own) in contenders.items():
            if own not in wall:
                continue
            line = [backend, where, rate(wall.get(native)), rate(wall.get(own))]
            line += [ratio(rates.get(own), rates.get(native)) for rates in (wall, cpu)]
            line += [
                ratio(wall.get(name), wall[f"{who}, 1"])
                for name, who in ((native, "native"), (own, "xdevice"))
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
    asked = parsed()
    if asked.model:
        print(scaling_model.table())
        return
    if asked.barrier is not None:
        counts = [n for n in asked.barrier or scaling_barrier.COUNTS if n > 1]
        most = min(max(counts), scaling_barrier.REAL)
        for line in (*scaling_barrier.table(counts), "", *scaling_barrier.faults(most)):
            print(line, flush=True)
        return
    results: dict[str, dict[str, Rates]] = {}
    print("| " + " | ".join(HEAD) + " |\n| --- | --- |" + " ---: |" * (len(HEAD) - 2))
    for name in dict.fromkeys(asked.backend.split(",")):
        results[name] = {job: measured(name, job, asked.rounds, asked.seconds) for job in JOBS}
        for line in rows(name, results[name]):
            print("| " + " | ".join(line) + " |", flush=True)
    if asked.json:
        asked.json.write_text(json.dumps(results, indent=1), encoding="utf-8")


def parsed() -> argparse.Namespace:
    ways = {path.stem for path in (HERE / "scaling_native").glob("[a-z]*.py")}
    here = [name for name in xdevice.available() if name in ways]
    parser = argparse.ArgumentParser(
        description="What two devices and two processes bring, beside the native ways."
    )
    parser.add_argument(
        "--backend", default=",".join(here), help="a,b,c; all that are installed and have gradients"
    )
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--seconds", type=float, default=0.2, help="of each turn")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure there")
    parser.add_argument(
        "--barrier",
        type=int,
        nargs="*",
        metavar="N",
        help="measure the barrier of N processes, and no more",
    )
    parser.add_argument(
        "--model",
        action="store_true",
        help="print what many processes would cost, and nothing else",
    )
    asked = parser.parse_args()
    unknown = [name for name in asked.backend.split(",") if name not in here]
    if unknown and not (asked.model or asked.barrier is not None):
        parser.error(f"no native way for {', '.join(unknown)}; there are {', '.join(here)}")
    if asked.rounds < 1 or asked.seconds <= 0:
        parser.error("--rounds is 1 or more, and --seconds above 0")
    if find_spec("sklearn") is None:
        parser.error("the lesson needs scikit-learn; pip install -r benchmarks/requirements.txt")
    return asked


if __name__ == "__main__":
    main()
