"""How soon a job of two processes ends after one has failed, with each framework's own engine.

    python benchmarks/failures.py --backend torch,jax --rounds 3

The jobs are real ones, started with `xdevice launch`, and by default rank 1 fails. The
figures are seconds from the failure, whose time the failing process prints,
until the launcher ends, after all its processes; each is the median over the
rounds. The timeout of 4 s is part of the figures of failures that only a
timeout detects. A job that did not fail, or did not name the failed rank, has
a `!` in the table, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from statistics import median
from threading import Timer
from typing import NamedTuple

import numpy as np
from scaling import QUIET

import xdevice
from xdevice import distributed

TIMEOUT = 4.0
START = 60.0
MARK = "fails at "


def print_time() -> None:
    """Print the time of the failure, for the process that reads the launcher's output."""
    sys.stdout.write(f"{MARK}{time.time()}\n")
    sys.stdout.flush()


# The failures, while the other rank is in its all_reduce, or soon will be


def is_killed() -> None:
    """Most likely while both are inside the engine's work."""

    def kill_itself() -> None:
        print_time()
        os.kill(os.getpid(), signal.SIGKILL)

    Timer(0.5, kill_itself).start()
    while True:
        reduce(10_000_000)


def raises() -> None:
    print_time()
    raise ValueError(f"a mistake of rank {distributed.rank()}")


def ends_early() -> None:
    print_time()
    sys.exit(3)


def gives_another_shape() -> None:
    print_time()
    reduce(4)


def calls_another_collective() -> None:
    print_time()
    distributed.barrier()


def is_frozen() -> None:
    print_time()
    os.kill(os.getpid(), signal.SIGSTOP)


def is_elsewhere() -> None:
    print_time()
    time.sleep(600)


_FUNCTIONS = (
    is_killed,
    raises,
    ends_early,
    gives_another_shape,
    calls_another_collective,
    is_frozen,
    is_elsewhere,
)
FAILURES = {function.__name__: function for function in _FUNCTIONS}
NEVER_STARTS = "never_starts"
KINDS = (*FAILURES, NEVER_STARTS)


def reduce(length: int) -> None:
    """An all-reduce of that many numbers."""
    distributed.all_reduce(xdevice.tensor(np.ones(length, "float32")))


def work(kind: str, rank: int) -> None:
    """One process of a job."""
    if kind == NEVER_STARTS:
        if distributed.rank() == rank:
            time.sleep(600)
        print_time()
        distributed.init(TIMEOUT)  # which raises
    with distributed.process_group(TIMEOUT, start=START):
        reduce(3)  # all is well
        if distributed.rank() == rank:
            FAILURES[kind]()
        length = 3
        if kind == is_killed.__name__:
            length = 10_000_000
        while True:
            reduce(length)


class Measurement(NamedTuple):
    """One job that failed."""

    seconds: float  # from the failure until all processes had ended
    is_reported: bool  # whether the job failed and named the rank


def measure(backend: str, kind: str, rank: int) -> Measurement:
    """Run a job in which this rank fails."""
    command = [sys.executable, "-m", "xdevice", "launch", "-n", "2", "--backend", backend]
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("XDEVICE_")
    }
    job = subprocess.run(
        [*command, __file__, "--work", kind, "--rank", str(rank)],
        env=environment | QUIET,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    end = time.time()
    times = [line.rpartition(MARK)[2] for line in job.stdout.splitlines() if MARK in line]
    if len(times) != 1:
        raise SystemExit(f"{backend}: {kind} did not come to fail:\n{job.stderr[-3000:]}")
    is_reported = job.returncode != 0 and f"rank {rank}" in job.stderr
    return Measurement(end - float(times[0]), is_reported)


def cell(backend: str, kind: str, rank: int, rounds: int) -> str:
    """The median in seconds, with a ``!`` if a round did not report the failure."""
    measurements = [measure(backend, kind, rank) for _ in range(rounds)]
    text = f"{median(measurement.seconds for measurement in measurements):.1f}"
    if all(measurement.is_reported for measurement in measurements):
        return text
    return f"{text} !"


def options(parser: argparse.ArgumentParser) -> argparse.Namespace:
    parser.add_argument(
        "--backend", default="torch,tensorflow,paddle,mxnet,jax", help="frameworks, comma-separated"
    )
    parser.add_argument(
        "--kind", choices=KINDS, action="append", help="only these failures; may be repeated"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--rank", type=int, choices=[0, 1], default=1, help="the rank that fails (default: 1)"
    )
    parser.add_argument("--work", choices=KINDS, help=argparse.SUPPRESS)
    return parser.parse_args()


def check(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """Exit with an error if these arguments do not go together."""
    if arguments.rounds < 1:
        parser.error("--rounds is 1 or more")


def main() -> int:
    """Print the table, a row at a time; the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments = options(parser)
    rank = arguments.rank
    if arguments.work:
        work(arguments.work, rank)
        return 0
    check(parser, arguments)
    try:
        backends = [str(xdevice.backend(name)) for name in arguments.backend.split(",")]
    except xdevice.XDeviceError as error:
        parser.error(str(error))
    kinds = arguments.kind or KINDS
    print(f"| rank {rank} | " + " | ".join(kind.replace("_", " ") for kind in kinds) + " |")
    print("| --- |" + " ---: |" * len(kinds), flush=True)
    all_are_reported = True
    for backend in backends:
        cells = [cell(backend, kind, rank, arguments.rounds) for kind in kinds]
        print(f"| {backend} | " + " | ".join(cells) + " |", flush=True)
        if any("!" in text for text in cells):
            all_are_reported = False
    return int(not all_are_reported)


if __name__ == "__main__":
    sys.exit(main())
