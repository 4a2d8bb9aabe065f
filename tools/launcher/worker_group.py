"""The worker group: a job's processes on one host, started, watched and stopped."""

import os
import random
import selectors
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path

import psutil

from xdevice.distributed.deadlines import PEER_FAILED, SETTLING, TERMINATION, UNKILLABLE
from xdevice.distributed.launcher_variables import LOCALHOST, SOCKET
from xdevice.errors import DistributedError
from xdevice.tools.launcher.coordinator import Coordinator
from xdevice.tools.launcher.output import Screen, Stream
from xdevice.tools.launcher.process_tree import ProcessTree, Signals, reaped

_TICK = 0.02  # seconds between two rounds of watching

# The running processes count as frozen if so many checks in a row find all of
# them stopped. Checks are counted, and not seconds: the system may stop the
# launcher too, and its clock goes on.
_FROZEN_AFTER = 8
_SECONDS_BETWEEN_CHECKS = 0.5

# Rounds of reading what the pipes still hold. A process that has escaped may
# hold a pipe, and write for ever.
_LAST_ROUNDS = 32


@dataclass(frozen=True)
class Plan:
    """What is started."""

    command: Sequence[str]
    processes: int
    environment: Mapping[str, str]  # the same for all
    cores: Sequence[Sequence[int]] = ()  # of each process, if they are pinned
    logs: Path | None = None
    time_limit: float | None = None  # seconds

    def variables(self, rank: int) -> dict[str, str]:
        """The variables that tell a process its rank: xdevice's, and those of torchrun."""
        numbers = {
            "RANK": rank,
            "WORLD_SIZE": self.processes,
            "LOCAL_RANK": rank,
            "LOCAL_WORLD_SIZE": self.processes,
        }
        torchrun_variables = {name: str(number) for name, number in numbers.items()}
        xdevice_variables = {f"XDEVICE_{name}": text for name, text in torchrun_variables.items()}
        return xdevice_variables | torchrun_variables


@dataclass(eq=False)
class Worker:
    """A process of the job, started by this launcher."""

    rank: int
    process: subprocess.Popen[bytes]
    streams: dict[str, Stream]

    @property
    def is_running(self) -> bool:
        return self.process.returncode is None

    @property
    def exit_status(self) -> int:
        return self.process.returncode or 0


@dataclass(eq=False)
class WorkerGroup:
    """The workers of one attempt to run the job."""

    plan: Plan
    screen: Screen
    tree: ProcessTree
    signals: Signals
    began: float = field(default_factory=time.monotonic)
    workers: list[Worker] = field(default_factory=list)
    ended: list[Worker] = field(default_factory=list)  # by themselves, the first first
    frozen: list[int] = field(default_factory=list)  # ranks that are stopped, as by SIGSTOP
    _pipes: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    _first_failure: float | None = None
    _frozen_checks: int = 0  # in a row that found all running processes stopped
    _next_check: float = 0.0

    def run(self) -> None:
        """Run the processes until all have ended, by themselves or because one has failed."""
        coordinator = Coordinator(self.plan.processes)
        coordinator.start()
        meeting = {
            SOCKET: coordinator.path,
            "MASTER_ADDR": LOCALHOST,
            "MASTER_PORT": str(free_port()),
        }
        with reaped(self.tree, coordinator.folder):
            try:
                for rank in range(self.plan.processes):
                    self._start(rank, meeting)
                while not self._is_decided():
                    self._pass_on(_TICK)
                    self.ended += self._reap()
                    if self.ended and time.monotonic() >= self._next_check:
                        self._check_frozen()
            finally:  # also after an error of the launcher itself
                self._stop()
                coordinator.stop()
        self._finish()

    # The start

    def _start(self, rank: int, meeting: Mapping[str, str]) -> None:
        try:
            out_log = self._open_log(rank, "out")
            err_log = self._open_log(rank, "err")
            process = self._start_process(rank, meeting)
        except OSError as error:  # too many processes or files, no memory
            raise DistributedError(f"rank {rank} could not be started: {error}") from error
        assert process.stdout is not None
        assert process.stderr is not None
        streams = {
            "out": Stream("out", rank, process.stdout, self.screen, out_log),
            "err": Stream("err", rank, process.stderr, self.screen, err_log),
        }
        self.workers.append(Worker(rank, process, streams))
        for stream in streams.values():
            self._pipes.register(stream.pipe, selectors.EVENT_READ, stream)

    def _open_log(self, rank: int, name: str) -> FileIO | None:
        if self.plan.logs is None:
            return None
        return open(self.plan.logs / f"rank-{rank}.{name}", "xb", buffering=0)

    def _start_process(self, rank: int, meeting: Mapping[str, str]) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            **self.plan.environment,
            **self.plan.variables(rank),
            **meeting,
        }
        with ExitStack() as undo:
            if self.plan.cores:
                undo.callback(os.sched_setaffinity, 0, os.sched_getaffinity(0))
                cores = self.plan.cores[rank]
                os.sched_setaffinity(0, cores)  # which a child inherits
            return self.tree.start(self.plan.command, environment, subprocess.PIPE, subprocess.PIPE)

    # While they run

    def _is_decided(self) -> bool:
        """Whether all have ended, or those that run are to be stopped."""
        if len(self.ended) == len(self.workers) or self.frozen:
            return True
        if self.stopped or self.out_of_time:
            return True
        failures = [worker.exit_status for worker in self.ended if worker.exit_status]
        if any(status != PEER_FAILED for status in failures):
            return True
        if failures and self._first_failure is None:
            self._first_failure = time.monotonic()
        if self._first_failure is None:
            return False
        # a process that is stopped would never end by itself
        return time.monotonic() > self._first_failure + SETTLING or self._all_are_stopped()

    def _reap(self) -> list[Worker]:
        """The workers that have ended since the last call."""
        ended = []
        for worker in self.workers:
            if worker.is_running and worker.process.poll() is not None:
                self.tree.leader_ended(worker.process.pid)
                ended.append(worker)
        return ended

    def _check_frozen(self) -> None:
        """Find out whether all running processes are stopped.

        After shutdown() no other process waits for them, and would report it.
        """
        self._next_check = time.monotonic() + _SECONDS_BETWEEN_CHECKS
        self._frozen_checks = self._frozen_checks + 1 if self._all_are_stopped() else 0
        if self._frozen_checks == _FROZEN_AFTER:
            self.frozen = [worker.rank for worker in self._running()]

    def _all_are_stopped(self) -> bool:
        running = self._running()
        return bool(running) and all(map(_is_stopped, running))

    def _running(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.is_running]

    def _pass_on(self, seconds: float) -> bool:
        """Wait so long for output, and show it; whether there was some."""
        if self.screen.full:  # the processes have to wait for the reader
            return self.screen.write(seconds or _TICK) or self.signals.received is None
        ready = self._pipes.select(seconds)
        for key, _ in ready:
            if not key.data.read():
                self._pipes.unregister(key.fileobj)
        self.screen.write()
        return bool(ready)

    # How it ended

    @property
    def stopped(self) -> bool:
        """Whether a signal, or the end of the launcher's own output, stops the job."""
        return self.signals.received is not None or self.screen.broken is not None

    @property
    def out_of_time(self) -> bool:
        limit = self.plan.time_limit
        return limit is not None and time.monotonic() > self.began + limit

    @property
    def failed(self) -> Worker | None:
        """The first that failed by itself, else the first that ended because another one failed."""
        failed = [worker for worker in self.ended if worker.exit_status]
        return min(failed, key=lambda worker: worker.exit_status == PEER_FAILED, default=None)

    # The end

    def _stop(self) -> None:
        """Stop the running processes and their process trees: ask first, then kill."""
        signals_before = self.signals.times
        deadline = time.monotonic() + TERMINATION
        have_been_asked = False
        while self.tree.members() and time.monotonic() <= deadline + UNKILLABLE:
            has_second_signal = self.signals.times > signals_before  # a second Ctrl-C
            if time.monotonic() > deadline or has_second_signal:
                self.tree.kill()
            elif not have_been_asked:
                self.tree.ask_to_stop()
                have_been_asked = True
            self._pass_on(_TICK)
            self._reap()

    def _finish(self) -> None:
        """Show the last of the output, and close everything."""
        for _ in range(_LAST_ROUNDS):
            while self.screen.full and self._pass_on(_TICK):
                continue
            if not self._pass_on(0):
                break
        self._reap()
        for worker in self.workers:
            for stream in worker.streams.values():
                stream.close()
        self._pipes.close()


def _is_stopped(worker: Worker) -> bool:
    """Whether the process is stopped, as by SIGSTOP; one that a debugger stops is not."""
    try:
        return bool(psutil.Process(worker.process.pid).status() == psutil.STATUS_STOPPED)
    except psutil.Error:  # it has just ended
        return False


def free_port() -> int:
    """A port for the engine's master that is free on this host.

    It is not one of those that the system gives to connections, so it stays
    free until the engine starts.
    """
    while True:
        port = random.randrange(10_000, 32_768)
        with suppress(OSError), socket.socket() as any_socket:
            any_socket.bind(("", port))
            return port
