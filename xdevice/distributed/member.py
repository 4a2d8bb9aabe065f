"""A process's own side of the job: it asks at the gate, and tells the others when it fails."""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any

from xdevice.distributed.failing import blamed, failed, without_verdict
from xdevice.distributed.gate import Gate
from xdevice.distributed.meeting import meet, opened
from xdevice.distributed.periods import LEAVING, NEWS, VERDICT
from xdevice.distributed.watcher import Watcher
from xdevice.errors import DistributedError, DistributedTimeoutError

if TYPE_CHECKING:
    from xdevice.distributed.entry import Entry
    from xdevice.distributed.seat import Seat


class Membership:
    """This process's membership of a job, from the meeting to the shutdown."""

    def __init__(self, seat: Seat, timeout: float, words: dict[str, Any]) -> None:
        self.seat, self.timeout = seat, timeout  # of the meeting; `wait_at_most` changes it
        self.failure: DistributedError | None = None
        self.told = False  # whether the failure has been raised
        self.inside: tuple[str, float] | None = None  # the engine's work that goes on, and since when
        self.last = "nothing yet"
        self._news = threading.Event()
        hello = {
            "rank": seat.rank,
            "world_size": seat.world_size,
            "local_rank": seat.local_rank,
            "pid": os.getpid(),
            "id": uuid.uuid4().hex,
            "name": socket.gethostname(),
            **words,
        }
        self._coordinator = opened(seat, hello, timeout) if seat.rank == 0 else None
        try:
            line, self._alarm, self.job = meet(seat, hello, timeout)
        except BaseException:
            if self._coordinator is not None:
                self._coordinator.join(1)
            raise
        self._gate = Gate(line, seat, self.job, self._coordinator.have_entered if self._coordinator else None)
        try:
            self._watcher = Watcher(self, self._alarm)
            self._watcher.start()
        except BaseException:  # too many open files or threads: the others hear at once that this process has gone
            self._gate.close()
            self._alarm.close()
            raise

    # Collectives

    def enter(self, entry: Entry) -> None:
        """Return when every process of the job is here, with the same entry."""
        self._check()
        try:
            answer = self._gate.enter(entry, self.timeout)
        except TimeoutError:
            self.fail(self._late_at_gate(entry.name))
        except BaseException as error:  # Ctrl-C: an answer may come yet, and would be taken for the next one's
            self.interrupted(error)
            raise
        else:
            if answer and "entered" in answer:
                self.last = entry.name
                return
            self.fail(failed(answer) if answer else self.rank_0_gone())
        self._check()

    def wait_at_most(self, seconds: float) -> None:
        """How many seconds this process waits for the others from now on."""
        self.timeout = seconds
        if self._coordinator is not None:
            self._coordinator.timeout = seconds

    def watch_over(self, what: str) -> None:
        """From now on the engine works; if it takes too long, the process is ended."""
        self.inside = (what, time.monotonic())
        if self.failure is not None:  # heard of since the gate: the watcher has seen no work to end
            self.inside = None
            self._check()

    def came_back(self) -> None:
        """The engine has done its work."""
        self.inside = None
        self._check()

    def _check(self) -> None:
        if self.failure is not None:
            self.told = True
            raise self.failure

    # Failures

    def raised(self, error: BaseException) -> None:
        """Tell the others that this process has raised an error, and fails."""
        if self.failure is None:
            self._alarm.say(raised=f"{type(error).__name__}: {error}"[:2000])
            self._news.wait(NEWS)

    def left(self) -> None:
        """Tell the others that this process ends without having shut down."""
        if self.failure is None:
            self._alarm.say(left=True)
            self._news.wait(NEWS)

    def interrupted(self, error: BaseException) -> None:
        """This process has left a collective in the middle: the job cannot go on."""
        self.inside = None
        self.raised(error)
        self.fail(blamed(DistributedError, f"rank {self.seat.rank} was interrupted in a collective", self.seat.rank))

    def explained(self, error: Exception, what: str) -> DistributedError:
        """Why the engine's work has failed: because of another process, if there is news of one."""
        inside, self.inside = self.inside, None
        if not self._news.wait(LEAVING):
            if inside is not None and time.monotonic() - inside[1] > self.timeout:
                self._ask_who_is_to_blame(what)
            self.raised(error)
        failure, self.told = self.failure, True
        if failure is None or getattr(failure, "rank", None) == self.seat.rank:
            return DistributedError(f"{what} failed on rank {self.seat.rank}: {error}")
        return failure

    def _ask_who_is_to_blame(self, what: str) -> None:
        """The engine's time was over: it has failed because of a process that rank 0 finds, or of rank 0 itself."""
        self._alarm.say(stuck=what)
        if not self._news.wait(VERDICT) and self.seat.rank:
            self.fail(without_verdict(self.seat, what, self.timeout))

    def fail(self, error: DistributedError) -> DistributedError:
        """The job has failed with this error; with an earlier one, if there is one."""
        if self.failure is None:
            self.failure = error
        self._news.set()
        return self.failure

    def rank_0_gone(self) -> DistributedError:
        """The error for a connection that rank 0 has closed."""
        why = "has gone: it was killed, or ended without shutdown()"
        return blamed(DistributedError, f"rank 0 (at {self.seat.host}) {why}", 0)

    def _late_at_gate(self, name: str) -> DistributedError:
        why = f"has not answered for {self.timeout:g} s, so rank {self.seat.rank} cannot enter {name}"
        return blamed(DistributedTimeoutError, f"rank 0 (at {self.seat.host}) {why}: it is stopped, or its host is", 0)

    # The end

    def close(self) -> None:
        """Close the lines; after `enter("shutdown")` no other process misses this one."""
        self._gate.close()
        try:
            self._alarm.socket.shutdown(socket.SHUT_RDWR)  # which wakes the watcher
        except OSError:
            pass
        if threading.current_thread() is not self._watcher:
            self._watcher.join(5)
        self._alarm.close()
        if self._coordinator is not None:
            self._coordinator.join(1)  # the other processes may take longer, or never close theirs

    def forget(self) -> None:
        """In a forked child: close what is the parent's, and send nothing."""
        self._gate.close()
        self._alarm.close()
        if self._coordinator is not None:
            self._coordinator.forget()
