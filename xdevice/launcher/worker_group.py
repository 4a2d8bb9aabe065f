"""The worker group: the processes of a job on one host, started, watched, and stopped with their process trees."""

import os
import selectors
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from xdevice.distributed.failures import PEER_FAILED, SETTLING, TERMINATION, UNKILLABLE
from xdevice.distributed.process_info import block_size
from xdevice.errors import DistributedError
from xdevice.launcher.output import Screen, Stream
from xdevice.launcher.process_tree import ProcessTree, Signals, reaped

_TICK = 0.02
_LOOKING = 0.5  # seconds between two looks at whether the processes that are left are stopped
_LOOKS = 8  # counted, as the system may stop the launcher, too, and its clock goes on meanwhile
_ROUNDS = 32  # of reading what the pipes still hold: a process that has escaped may have one, and write for ever


@dataclass(frozen=True)
class Plan:
    """What is started on this host, which is one of the job's nodes."""

    command: Sequence[str]
    processes: int  # on each node
    nodes: int
    node: int
    port: int
    environment: Mapping[str, str]  # the same for all
    cores: Sequence[Sequence[int]] = ()  # of each process, where they are pinned
    logs: Path | None = None
    time_limit: float | None = None  # seconds

    @property
    def world_size(self) -> int:
        return self.nodes * self.processes

    @property
    def ranks(self) -> range:
        return range(self.node * self.processes, (self.node + 1) * self.processes)

    @property
    def ports(self) -> list[int]:
        """The ports of the job's block that are needed on this host."""
        if self.nodes == 1:
            return list(range(self.port, self.port + block_size(self.world_size)))
        first = self.port + 2
        own = [first + rank for rank in self.ranks] + [
            first + self.world_size + rank for rank in self.ranks
        ]
        return own if self.node else [self.port, self.port + 1, *own, first + 2 * self.world_size]

    def variables(self, rank: int) -> dict[str, str]:
        """The variables that tell a process its rank: xdevice's own, and those that torchrun sets."""
        local, size = rank - self.ranks[0], self.world_size
        numbers = {
            "RANK": rank,
            "WORLD_SIZE": size,
            "LOCAL_RANK": local,
            "LOCAL_WORLD_SIZE": self.processes,
        }
        return {
            **{
                prefix + name: str(number)
                for prefix in ("XDEVICE_", "")
                for name, number in numbers.items()
            },
            "XDEVICE_MASTER_PORT": str(self.port),
            "MASTER_ADDR": self.environment["XDEVICE_MASTER_ADDR"],
            "MASTER_PORT": str(self.port + block_size(size) - 1),
        }


@dataclass(eq=False)
class Rank:
    rank: int
    process: subprocess.Popen[bytes]
    streams: dict[str, Stream]


@dataclass(eq=False)
class WorkerGroup:
    plan: Plan
    screen: Screen
    tree: ProcessTree
    signals: Signals
    ranks: list[Rank] = field(default_factory=list)
    ended: list[Rank] = field(default_factory=list)  # by themselves, the first first
    pipes: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    began: float = field(default_factory=time.monotonic)
    first_failure: float | None = None
    frozen: list[int] = field(
        default_factory=list
    )  # stopped, as by SIGSTOP, when all others have ended
    _looks: int = 0
    _next_look: float = 0.0

    def run(self) -> None:
        """Run the processes until all have ended, of themselves or because one has failed."""
        with reaped(self.tree):
            try:
                self._start()
                while not self._decided():
                    self._pass_on(_TICK)
                    self.ended += self._reaped()
                    if self.ended and time.monotonic() >= self._next_look:
                        self._look_for_frozen()
            finally:  # also after an error of the launcher itself
                self._stop()
        self._finish()

    def _start(self) -> None:
        logs = self.plan.logs
        for rank in self.plan.ranks:
            try:
                files = (
                    {name: logs / f"rank-{rank}.{name}" for name in ("out", "err")} if logs else {}
                )
                opened = {name: open(file, "xb", buffering=0) for name, file in files.items()}  # noqa: SIM115
                process = self._started(rank)
            except OSError as error:  # too many processes or files, no memory
                raise DistributedError(f"rank {rank} could not be started: {error}") from error
            pipes: dict[str, Any] = {"out": process.stdout, "err": process.stderr}
            streams = {
                name: Stream(name, rank, pipe, self.screen, opened.get(name))
                for name, pipe in pipes.items()
            }
            self.ranks.append(Rank(rank, process, streams))
            for stream in streams.values():
                self.pipes.register(stream.pipe, selectors.EVENT_READ, stream)

    def _started(self, rank: int) -> subprocess.Popen[bytes]:
        environment = {**os.environ, **self.plan.environment, **self.plan.variables(rank)}
        with ExitStack() as undo:
            if self.plan.cores:
                undo.callback(os.sched_setaffinity, 0, os.sched_getaffinity(0))
                os.sched_setaffinity(
                    0, self.plan.cores[rank - self.plan.ranks[0]]
                )  # which a child inherits
            return self.tree.start(self.plan.command, environment, subprocess.PIPE, subprocess.PIPE)

    def _look_for_frozen(self) -> None:
        """Find out whether all that are left are stopped: after shutdown() no other process waits for them."""
        left = [rank for rank in self.ranks if rank.process.returncode is None]
        self._next_look = time.monotonic() + _LOOKING
        self._looks = self._looks + 1 if left and all(map(_is_stopped, left)) else 0
        if self._looks == _LOOKS:
            self.frozen = [rank.rank for rank in left]

    def _reaped(self) -> list[Rank]:
        found = [
            rank
            for rank in self.ranks
            if rank.process.returncode is None and rank.process.poll() is not None
        ]
        for rank in found:
            self.tree.ended(rank.process.pid)
        return found

    def _decided(self) -> bool:
        if len(self.ended) == len(self.ranks) or self.frozen or self.stopped or self.out_of_time:
            return True
        statuses = [rank.process.returncode for rank in self.ended if rank.process.returncode]
        if statuses and self.first_failure is None:
            self.first_failure = time.monotonic()
        settled = (
            self.first_failure is not None and time.monotonic() > self.first_failure + SETTLING
        )
        return settled or any(status != PEER_FAILED for status in statuses)

    @property
    def stopped(self) -> bool:
        """Whether a signal, or the end of the launcher's own output, stops the job."""
        return self.signals.received is not None or self.screen.broken is not None

    @property
    def out_of_time(self) -> bool:
        limit = self.plan.time_limit
        return limit is not None and time.monotonic() > self.began + limit

    @property
    def failing(self) -> Rank | None:
        """The first that failed by itself; one that ended because of another's failure comes second."""
        bad = [rank for rank in self.ended if rank.process.returncode]
        return min(bad, key=lambda rank: rank.process.returncode == PEER_FAILED, default=None)

    def _stop(self) -> None:
        """Stop the processes that are left, with their process trees: ask first, and kill those that do not end."""
        heard, asked, deadline = self.signals.times, False, time.monotonic() + TERMINATION
        while self.tree.members() and (late := time.monotonic() - deadline) <= UNKILLABLE:
            if late > 0 or self.signals.times > heard:  # a second Ctrl-C
                self.tree.kill()
            elif not asked:
                self.tree.ask_to_stop()
                asked = True
            self._pass_on(_TICK)
            self._reaped()

    def _finish(self) -> None:
        """Show the last of what they have printed, and close everything."""
        for _ in range(_ROUNDS):
            while self.screen.full and self._pass_on(_TICK):
                continue
            if not self._pass_on(0):
                break
        self._reaped()
        for rank in self.ranks:
            for stream in rank.streams.values():
                stream.close()
        self.pipes.close()

    def _pass_on(self, seconds: float) -> bool:
        """Wait so long for something to show, and show it; whether there was something."""
        if self.screen.full:  # the processes have to wait for the reader
            return self.screen.write(seconds or _TICK) or self.signals.received is None
        ready = self.pipes.select(seconds)
        for key, _ in ready:
            if not key.data.read():
                self.pipes.unregister(key.fileobj)
        self.screen.write()
        return bool(ready)


def _is_stopped(rank: Rank) -> bool:
    """Whether the process is stopped, as by SIGSTOP; a debugger's is not."""
    try:
        return bool(psutil.Process(rank.process.pid).status() == psutil.STATUS_STOPPED)
    except psutil.Error:  # it has just ended
        return False
