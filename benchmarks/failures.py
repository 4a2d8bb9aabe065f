"""How soon a job of two processes ends after one has failed, by default the second, with each framework's own engine.

    python benchmarks/failures.py --backend torch,jax --rounds 3
    python benchmarks/failures.py --backend numpy --engine mpi          which serves every framework alike

Real jobs, started with `xdevice launch`. The seconds are from the failure, whose time the failing process
prints, to the launcher's own end, when every process is gone; the median over the rounds. What does not answer has
4 s, which are in the figures. Each job must have failed, and must say which rank it was, or the table has a `!`
there and the exit status is 1.
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

import numpy as np
from scaling import QUIET

import xdevice
from xdevice import distributed
from xdevice.distributed.process_info import block_size
from xdevice.distributed.rendezvous.ports import free_block

TIMEOUT = 4.0
START = 60.0
MARK = "fails at "


def now() -> None:
    """Tell the launcher's reader when it was."""
    sys.stdout.write(f"{MARK}{time.time()}\n")
    sys.stdout.flush()


# What the rank does, when the other has come to its all_reduce or soon will


def is_killed() -> None:
    """Most likely while both are inside the engine's work."""
    Timer(0.5, lambda: (now(), os.kill(os.getpid(), signal.SIGKILL))).start()
    while True:
        reduce(10_000_000)


def raises() -> None:
    now()
    raise ValueError(f"a mistake of rank {distributed.rank()}")


def ends_early() -> None:
    now()
    sys.exit(3)


def gives_another_shape() -> None:
    now()
    reduce(4)


def calls_another_collective() -> None:
    now()
    distributed.barrier()


def is_frozen() -> None:
    now()
    os.kill(os.getpid(), signal.SIGSTOP)


def is_elsewhere() -> None:
    now()
    time.sleep(600)


FAILURES = {
    act.__name__: act
    for act in (
        is_killed,
        raises,
        ends_early,
        gives_another_shape,
        calls_another_collective,
        is_frozen,
        is_elsewhere,
    )
}
NEVER_STARTS = "never_starts"
KINDS = (*FAILURES, NEVER_STARTS)


def reduce(length: int) -> None:
    """An all-reduce of that many numbers."""
    distributed.all_reduce(xdevice.tensor(np.ones(length, "float32")))


def work(kind: str, rank: int) -> None:
    """One process of a job."""
    if kind == NEVER_STARTS:
        now()
        distributed.init(TIMEOUT)  # which raises
    with distributed.process_group(TIMEOUT, start=START):
        reduce(3)  # all is well
        if distributed.rank() == rank:
            FAILURES[kind]()
        while True:
            reduce(10_000_000 if kind == is_killed.__name__ else 3)


def seconds(backend: str, engine: str | None, kind: str, rank: int) -> tuple[float, bool]:
    """From the failure to the end of all, and whether the rank was named and the job counted as failed."""
    processes = ["-n", "2"]
    if kind == NEVER_STARTS:  # the second of two hosts is not there
        port = free_block(block_size(2))
        processes = (
            f"-n 1 --nnodes 2 --node-rank 0 --master-addr 127.0.0.1 --master-port {port}".split()
        )
    command = [sys.executable, "-m", "xdevice", "launch", *processes, "--backend", backend]
    if engine:
        command += ["--engine", engine]
    env = {
        name: value for name, value in os.environ.items() if not name.startswith("XDEVICE_")
    } | QUIET
    done = subprocess.run(
        [*command, __file__, "--work", kind, "--rank", str(rank)],
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    ended = time.time()
    at = [line.rpartition(MARK)[2] for line in done.stdout.splitlines() if MARK in line]
    if len(at) != 1:
        raise SystemExit(f"{backend}: {kind} did not come to fail:\n{done.stderr[-3000:]}")
    return ended - float(at[0]), done.returncode != 0 and f"rank {rank}" in done.stderr


def cell(backend: str, engine: str | None, kind: str, rank: int, rounds: int) -> str:
    """The median, marked if any round was not as promised."""
    found = [seconds(backend, engine, kind, rank) for _ in range(rounds)]
    return f"{median(took for took, _ in found):.1f}" + (
        "" if all(named for _, named in found) else " !"
    )


def main() -> int:
    """Print the table, a row at a time; the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--backend", default="torch,tensorflow,paddle,mxnet,jax", help="frameworks, comma-separated"
    )
    parser.add_argument("--engine", choices=["mpi"], help="instead of the framework's own")
    parser.add_argument(
        "--kind", choices=KINDS, action="append", help="only these failures; may be repeated"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rank", type=int, choices=[0, 1], default=1, help="which one fails")
    parser.add_argument("--work", choices=KINDS, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.work:
        work(asked.work, asked.rank)
        return 0
    if asked.rounds < 1:
        parser.error("--rounds is 1 or more")
    if asked.engine and NEVER_STARTS in (asked.kind or ()):
        parser.error(
            f"mpirun starts all processes of one host: no {NEVER_STARTS} with --engine mpi"
        )
    if asked.rank == 0 and NEVER_STARTS in (asked.kind or (NEVER_STARTS,)):
        parser.error(f"give each --kind with --rank 0; {NEVER_STARTS} is of rank 1 alone")
    try:
        names = [str(xdevice.backend(name)) for name in asked.backend.split(",")]
    except xdevice.XDeviceError as error:
        parser.error(str(error))
    kinds = asked.kind or [kind for kind in KINDS if kind != NEVER_STARTS or not asked.engine]
    print(f"| rank {asked.rank} | " + " | ".join(kind.replace("_", " ") for kind in kinds) + " |")
    print("| --- |" + " ---: |" * len(kinds), flush=True)
    kept = True
    for name in names:
        cells = [cell(name, asked.engine, kind, asked.rank, asked.rounds) for kind in kinds]
        print(
            f"| {name}{', ' + asked.engine if asked.engine else ''} | " + " | ".join(cells) + " |",
            flush=True,
        )
        kept = kept and not any("!" in found for found in cells)
    return not kept


if __name__ == "__main__":
    sys.exit(main())
