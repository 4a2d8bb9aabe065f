"""The processes of a job on one host: started, watched, and stopped with all that they have started."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psutil

from xdevice.distributed.member import PEER_FAILED
from xdevice.errors import DistributedError
from xdevice.launcher.children import GRACE, Signals, alive, of_sessions
from xdevice.launcher.guard import MARKS, Guard, members
from xdevice.launcher.output import Log, Screen, Stream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xdevice.launcher.plan import Plan

SETTLING = 4.0
"""Seconds in which the rank that has failed may still show, once others have ended because of it."""

_TICK = 0.02
_PATIENCE = 5.0  # seconds after which a process that cannot even be killed is left to the system
_ROUNDS = 32  # of reading what the pipes still hold: somebody who got away may have one, and write for ever


@dataclass(eq=False)
class Rank:
    """One process of the job, started here."""

    rank: int
    process: subprocess.Popen[bytes]
    streams: dict[str, Stream]
    status: int | None = None  # as subprocess: negative is a signal
    left: list[psutil.Process] = field(default_factory=list)  # of its session when it ended

    @property
    def leads(self) -> bool:
        """Whether its process id is still the name of its session; nobody else has it before the last member ends."""
        return self.status is None or any(map(alive, self.left))

    def reap(self) -> bool:
        """Whether it has just ended; its status is noted."""
        if self.status is not None or self.process.poll() is None:
            return False
        self.status = self.process.returncode
        self.left = list(of_sessions({self.process.pid}).values())
        return True


@dataclass(eq=False)
class Crew:
    """The processes of this host, from the first start to the last end."""

    plan: Plan
    screen: Screen
    guard: Guard
    signals: Signals
    ranks: list[Rank] = field(default_factory=list)
    ended: list[Rank] = field(default_factory=list)  # by themselves, the first first
    pipes: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    began: float = field(default_factory=time.monotonic)
    first_failure: float | None = None

    def start(self) -> None:
        """Start them all."""
        for rank in self.plan.ranks:
            try:
                logs = {name: self._log(rank, name) for name in ("out", "err")}
                process = self._started(rank)
            except OSError as error:  # too many processes or files, no memory
                raise DistributedError(f"rank {rank} could not be started: {error}") from error
            pipes: dict[str, Any] = {"out": process.stdout, "err": process.stderr}
            streams = {n: Stream(n, pipe, self.screen.lines(n, rank), logs[n]) for n, pipe in pipes.items()}
            self.ranks.append(Rank(rank, process, streams))
            for stream in streams.values():
                self.pipes.register(stream.pipe, selectors.EVENT_READ, stream)

    def _started(self, rank: int) -> subprocess.Popen[bytes]:
        """That process, with nothing to read on its stdin, leader of a session of its own."""
        environment = {**os.environ, **self.plan.environment, **self.plan.place(rank), MARKS: self.guard.marks}
        ours = None
        if self.plan.cores:
            ours = os.sched_getaffinity(0)
            os.sched_setaffinity(0, self.plan.cores[rank - self.plan.ranks[0]])  # which a child inherits
        try:
            return subprocess.Popen(
                self.plan.command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        finally:
            if ours is not None:
                os.sched_setaffinity(0, ours)

    def _log(self, rank: int, name: str) -> Log | None:
        return Log(self.plan.logs / f"rank-{rank}.{name}") if self.plan.logs else None

    def watch(self) -> None:
        """Look after them until all have ended, one has failed, or somebody wants them to end."""
        while not self._decided():
            self._pass_on(_TICK)
            for rank in self.ranks:
                if rank.reap():
                    self.ended.append(rank)

    def _decided(self) -> bool:
        statuses = [rank.status for rank in self.ended if rank.status]
        if statuses and self.first_failure is None:
            self.first_failure = time.monotonic()
        settled = self.first_failure is not None and time.monotonic() > self.first_failure + SETTLING
        return (
            len(self.ended) == len(self.ranks)
            or settled
            or any(status != PEER_FAILED for status in statuses)
            or self.signals.received is not None
            or self.screen.broken is not None
            or self.out_of_time
        )

    @property
    def out_of_time(self) -> bool:
        limit = self.plan.time_limit
        return limit is not None and time.monotonic() > self.began + limit

    @property
    def failing(self) -> Rank | None:
        """The first that ended badly by itself; one that only another's failure has ended comes second."""
        bad = [rank for rank in self.ended if rank.status]
        return min(bad, key=lambda rank: rank.status == PEER_FAILED, default=None)

    def stop(self) -> None:
        """Stop whoever is left, with all that they have started: asked first, killed after a grace."""
        heard, asked = self.signals.times, False
        deadline = time.monotonic() + GRACE
        while left := members(self.guard.mark, [rank.process.pid for rank in self.ranks if rank.leads]):
            late = time.monotonic() - deadline
            if late > _PATIENCE:
                break
            if late > 0 or self.signals.times > heard:  # a second Ctrl-C
                _signal(left, signal.SIGKILL)
            elif not asked:
                _signal(left, signal.SIGTERM)
                _signal(left, signal.SIGCONT)  # one that is frozen hears nothing else
                asked = True
            self._pass_on(_TICK)
            for rank in self.ranks:
                rank.reap()

    def finish(self) -> None:
        """Show the last of what they have printed, and let go of everything."""
        for _ in range(_ROUNDS):
            while self.screen.full and self._pass_on(_TICK):
                continue
            if not self._pass_on(0):
                break
        for rank in self.ranks:
            rank.reap()
            for stream in rank.streams.values():
                stream.close(self.screen)
        self.pipes.close()

    def _pass_on(self, seconds: float) -> bool:
        """Wait so long for something to show, and show it; whether there was something."""
        if self.screen.full:  # who prints has to wait for who reads
            return self.screen.write(seconds or _TICK) or self.signals.received is None
        ready = self.pipes.select(seconds)
        for key, _ in ready:
            if not key.data.read(self.screen):
                self.pipes.unregister(key.fileobj)
        self.screen.write()
        return bool(ready)


def _signal(processes: Sequence[psutil.Process], number: int) -> None:
    for process in processes:
        try:
            process.send_signal(number)
        except psutil.Error:  # it has ended meanwhile
            continue
