"""The jobs of `scaling_barrier`, their processes, and the measurement of two barriers."""

from __future__ import annotations

import json
import os
import signal
import time
import traceback
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from xdevice.contract import Job
from xdevice.distributed.process_info import ProcessInfo
from xdevice.distributed.rendezvous.messages import Fingerprint

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ROUNDS = 7
AGREED = {"backend": "none", "engine": "none", "version": "none", "timeout": "none"}
COLLECTIVE = Fingerprint.of("all_reduce('sum')", ["float32[430500] on cpu"])


class JobLayout(NamedTuple):
    """The size of a job, the number of its processes on each host, and its first port."""

    world_size: int
    per_host: int
    port: int

    def host(self, rank: int) -> str:
        """The address of loopback that stands for the host of the rank."""
        number = rank // self.per_host
        if number == 0:
            return "127.0.0.1"
        return f"127.0.{(number + 1) // 250}.{(number + 1) % 250}"

    def info(self, rank: int) -> ProcessInfo:
        local_rank = rank % self.per_host
        return ProcessInfo(rank, self.world_size, local_rank, "127.0.0.1", self.port, "a benchmark")

    def job(self, rank: int) -> Job:
        size = self.world_size
        return Job(rank, size, rank % self.per_host, hosts_of(self), (0,) * size, 1)


@cache
def hosts_of(layout: JobLayout) -> tuple[str, ...]:
    """The host of each rank."""
    return tuple(layout.host(rank) for rank in range(layout.world_size))


# Measuring


class TimedBarrier(NamedTuple):
    """A function that enters a barrier, and a clock of rank 0's CPU time for it."""

    enter: Callable[[], None]
    cpu_clock: Callable[[], float]


class Round(NamedTuple):
    """The seconds of one entry into each barrier, and of rank 0's CPU time."""

    rank_0_seconds: float
    rank_0_cpu: float
    tree_seconds: float
    tree_cpu: float


def measure(by_rank_0: TimedBarrier, by_tree: TimedBarrier, entries: int) -> list[Round]:
    """Enter the two barriers by turns, so many times in each round."""
    rounds = [
        Round(*seconds_of_entry(by_rank_0, entries), *seconds_of_entry(by_tree, entries))
        for _ in range(ROUNDS)
    ]
    by_tree.enter()  # no process ends while another one is still measuring
    return rounds


def seconds_of_entry(barrier: TimedBarrier, entries: int) -> tuple[float, float]:
    """The seconds of one entry, and of rank 0's CPU time for it."""
    barrier.enter()  # all processes start together
    cpu_start = barrier.cpu_clock()
    start = time.perf_counter()
    for _ in range(entries):
        barrier.enter()
    seconds = time.perf_counter() - start
    cpu_seconds = barrier.cpu_clock() - cpu_start
    return seconds / entries, cpu_seconds / entries


# Processes


class Child(NamedTuple):
    """A forked process, and the pipe into which it writes its result as JSON."""

    pid: int
    output: int


def results_of_processes(
    functions: Sequence[Callable[[], object]], without: int | None = None
) -> list[Any]:
    """Call each function in a process of its own, and return their results.

    A process that fails has ``None`` as its result. That of the process with
    the number ``without`` is not waited for.
    """
    children = [start_child(function) for function in functions]
    try:
        return [read_result(child.output) for n, child in enumerate(children) if n != without]
    finally:
        for child in children:
            os.kill(child.pid, signal.SIGKILL)
            os.waitpid(child.pid, 0)


def start_child(function: Callable[[], object]) -> Child:
    """Fork a process that calls the function, writes its result, and ends."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writer, json.dumps(function()).encode())
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(writer)
    return Child(pid, reader)


def read_result(descriptor: int) -> Any:
    """What the process has written; ``None`` if it has ended without a result."""
    with open(descriptor, encoding="utf-8") as file:
        text = file.read()
    if not text:
        return None
    return json.loads(text)
