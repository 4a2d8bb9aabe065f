"""What the barrier before a collective costs, by rank 0 and by the tree.

``table`` is what ``scaling.py --barrier`` prints. The same processes enter
both barriers by turns. Up to 64 processes are real ones, forked from this one,
with a `Membership` each. For larger numbers see `scaling_barrier_stand_ins`.
The hosts are addresses of loopback.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

from parts.scaling_barrier_stand_ins import STAND_INS, measure_in_stand_in
from parts.scaling_barrier_timing import (
    AGREED,
    COLLECTIVE,
    JobLayout,
    Round,
    TimedBarrier,
    measure,
    results_of_processes,
)

from xdevice.distributed.membership import Membership
from xdevice.distributed.rendezvous.messages import Fingerprint, Request
from xdevice.distributed.rendezvous.ports import free_block
from xdevice.errors import DistributedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

MAX_REAL_PROCESSES = 64
COUNTS = (2, 8, 64, 256, 1024, 4096)
ENTRIES = 1000
"""How often all processes together enter each barrier in a round."""

TIMEOUT = 3.0
"""The timeout of the jobs with a fault, in seconds."""

HEADER = (
    "processes",
    "on hosts of",
    "by rank 0, µs",
    "by the tree, µs",
    "before / after",
    "rank 0's CPU, before / after",
)
FAULT_HEADER = (
    "the leader of a host",
    "processes",
    "raise an error",
    "name the leader",
    "the last one after, s",
)
FAULTS = {"is killed": signal.SIGKILL, "is frozen": signal.SIGSTOP}
"""The signals that a leader sends to itself, by their description in the table."""


def table(counts: Sequence[int]) -> Iterator[str]:
    """The lines of the table. Each is yielded once it is measured."""
    os.environ["XDEVICE_TOKEN"] = "a token of this benchmark's"
    allow_open_files(4 * max(counts) + 256)
    yield "| " + " | ".join(HEADER) + " |"
    yield "| ---: " * len(HEADER) + "|"
    for world_size in counts:
        for per_host in dict.fromkeys((min(world_size, 64), min(world_size, 8))):
            print(f"barrier: {world_size} processes, {per_host} on a host", file=sys.stderr)
            layout = JobLayout(world_size, per_host, port_for(world_size))
            yield table_row(layout, measured_rounds(layout))


def table_row(layout: JobLayout, rounds: list[Round]) -> str:
    by_rank_0 = median(row.rank_0_seconds for row in rounds) * 1e6
    by_tree = median(row.tree_seconds for row in rounds) * 1e6
    ratio = median(row.rank_0_seconds / row.tree_seconds for row in rounds)
    # The clock of a CPU is too coarse for the fastest barriers.
    cpu_ratio = median(row.rank_0_cpu / max(row.tree_cpu, 1e-9) for row in rounds)
    times = f"{by_rank_0:,.0f} | {by_tree:,.0f}"
    return f"| {layout.world_size} | {layout.per_host} | {times} | {ratio:.1f} | {cpu_ratio:.1f} |"


def measured_rounds(layout: JobLayout) -> list[Round]:
    """The measurements of rank 0's process, from a job of this layout."""
    functions: list[Callable[[], object]]
    with TemporaryDirectory() as folder:
        if layout.world_size <= MAX_REAL_PROCESSES:
            functions = [partial(measure_in_rank, layout, n) for n in range(layout.world_size)]
        else:
            functions = [
                partial(measure_in_stand_in, layout, number, Path(folder))
                for number in range(STAND_INS)
            ]
        results = results_of_processes(functions)
    if results[0] is None:
        raise SystemExit("the process of rank 0 has failed")
    return [Round(*values) for values in results[0]]


def port_for(world_size: int) -> int:
    """The first port of a block for the job; a fixed one for the largest jobs."""
    if world_size > max(COUNTS):
        return 20_000
    return free_block(2 * world_size + 3)


def allow_open_files(number: int) -> None:
    soft_limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = max(number, soft_limit)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))


# Real processes


def join(layout: JobLayout, rank: int) -> Membership:
    """Join the job as this rank, and pass its first barrier."""
    os.environ["XDEVICE_HOST"] = layout.host(rank)
    membership = Membership(layout.info(rank), 60, AGREED)
    membership.enter(Fingerprint("the first barrier"))
    return membership


def measure_in_rank(layout: JobLayout, rank: int) -> list[Round]:
    """Join a job as this rank, and measure its two barriers."""
    barrier = join(layout, rank)._barrier
    node = barrier._node
    if node is None:
        raise SystemExit("the processes have no tree barrier")

    def enter_by_rank_0() -> None:
        barrier._by_rank_0(Request(COLLECTIVE), 60)

    def enter_by_tree() -> None:
        barrier._by_tree(node, COLLECTIVE, 60)

    return measure(
        TimedBarrier(enter_by_rank_0, time.process_time),
        TimedBarrier(enter_by_tree, time.process_time),
        entries=max(20, ENTRIES // layout.world_size),
    )


# Processes that fail


class Report(NamedTuple):
    """The error of a process after the fault of another one."""

    named_rank: int | None
    seconds: float  # from the start of the collective to the error


def faults(processes: int) -> Iterator[str]:
    """A table of jobs on eight hosts, in which the leader of the second fails."""
    yield "| " + " | ".join(FAULT_HEADER) + " |"
    yield "| --- " + "| ---: " * 4 + "|"
    per_host = max(1, processes // 8)
    for description, fault in FAULTS.items():
        reports = reports_of_fault(JobLayout(processes, per_host, port_for(processes)), fault)
        named = sum(report.named_rank == per_host for report in reports)
        slowest = max(report.seconds for report in reports)
        yield f"| {description} | {processes} | {len(reports)} | {named} | {slowest:.1f} |"


def reports_of_fault(layout: JobLayout, fault: int) -> list[Report]:
    """The errors of the processes, after the leader of the second host has failed."""
    failing_rank = layout.per_host
    functions = [
        partial(work_until_fault, layout, rank, failing_rank, fault)
        for rank in range(layout.world_size)
    ]
    results = results_of_processes(functions, without=failing_rank)
    return [Report(*result) for result in results if result is not None]


def work_until_fault(layout: JobLayout, rank: int, failing_rank: int, fault: int) -> Report | None:
    """Enter collectives, in one of which a rank fails; ``None`` without an error."""
    membership = join(layout, rank)
    membership.set_timeout(TIMEOUT)
    report = None
    start = time.monotonic()
    try:
        for number in range(5):
            start = time.monotonic()
            if number == 3 and rank == failing_rank:
                os.kill(os.getpid(), fault)
            membership.enter(COLLECTIVE)
    except DistributedError as error:
        report = Report(error.rank, time.monotonic() - start)
    if rank == 0:
        # The coordinator, a thread of this process, reports to the other ranks.
        time.sleep(1)
    return report
