"""A process's own side of the job: it meets the others, asks at the gate, and listens for alarms."""

from __future__ import annotations

import errno
import faulthandler
import os
import select
import socket
import sys
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any, NoReturn

from xdevice.contract import Job
from xdevice.distributed.coordinator import ANSWER, Coordinator
from xdevice.distributed.lines import Line, parsed
from xdevice.distributed.ports import interface_with, listening, port_taken
from xdevice.distributed.seat import OURS
from xdevice.errors import DistributedError, DistributedTimeoutError

if TYPE_CHECKING:
    from xdevice.distributed.seat import Seat

PEER_FAILED = 75
"""The exit status of a process that ends because another one has failed."""

GRACE = 3.0
"""Seconds that an engine has to come back by itself once a process has failed, and the failed one has to end."""


class Membership:
    """This process's membership of a job, from meeting to shutdown."""

    def __init__(self, seat: Seat, timeout: float, words: dict[str, Any]) -> None:
        self.seat, self.timeout = seat, timeout  # for the meeting; whoever has met may change it
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
            **words,
        }
        hello["name"] = socket.gethostname()
        self._coordinator = self._open(hello) if seat.rank == 0 else None
        try:
            self._gate, self._alarm = self._meet(hello)
        except BaseException:
            if self._coordinator is not None:
                self._coordinator.join(1)
            raise
        self._watcher = threading.Thread(target=self._watch, name="xdevice.distributed.watcher", daemon=True)
        self._watcher.start()

    # Meeting

    def _open(self, hello: dict[str, Any]) -> Coordinator:
        try:
            try:
                listener = listening(self.seat.host, self.seat.port)
            except OSError as error:
                if error.errno != errno.EADDRNOTAVAIL:
                    raise
                listener = listening("", self.seat.port)  # a name or an address that leads here in another way
        except OSError as error:
            raise port_taken(0, self.seat.port, error) from error
        coordinator = Coordinator(listener, hello, self.timeout)
        coordinator.start()
        return coordinator

    def _meet(self, hello: dict[str, Any]) -> tuple[Line, Line]:
        deadline = time.monotonic() + self.timeout
        gate, alarm = self._connected(deadline), self._connected(deadline)
        try:
            self.job = self._introduce(hello, gate, alarm, deadline)
        except BaseException:
            gate.close()
            alarm.close()
            raise
        return gate, alarm

    def _introduce(self, hello: dict[str, Any], gate: Line, alarm: Line, deadline: float) -> Job:
        host = os.environ.get("XDEVICE_HOST") or gate.socket.getsockname()[0]
        for line, kind in ((gate, "gate"), (alarm, "alarm")):
            line.say(line=kind, host=self.seat.host if self.seat.rank == 0 else host, **hello)
        try:
            answer = gate.next(max(1.0, deadline - time.monotonic()) + 2 * ANSWER)
        except TimeoutError as error:
            raise self._late("rank 0 does not answer") from error
        news = parsed(answer or "")
        if "error" in news:
            raise _failed(news)
        if "hosts" not in news:
            there = f"{self.seat.host}:{self.seat.port}"
            if answer is None:
                message = (
                    f"rank 0 (at {there}) hung up before all had met: it was killed, or that is another program's port"
                )
                raise _blamed(DistributedError, message, 0)
            raise DistributedError(
                f"what answers at {there} is no rank 0 of an xdevice job; choose another port, with xdevice launch "
                "--master-port or XDEVICE_MASTER_PORT"
            )
        return Job(
            self.seat.rank,
            self.seat.world_size,
            self.seat.local_rank,
            tuple(news["hosts"]),
            tuple(news["local_ranks"]),
            self.seat.port,
            interface_with(news["hosts"][self.seat.rank]),
        )

    def _connected(self, deadline: float) -> Line:
        pause = 0.01
        while True:
            try:
                left = max(0.1, deadline - time.monotonic())
                return Line(socket.create_connection((self.seat.host, self.seat.port), timeout=left))
            except OSError as error:  # rank 0 is not there yet
                if time.monotonic() + pause > deadline:
                    raise self._late(f"rank 0 cannot be reached ({error})") from error
                time.sleep(pause)
                pause = min(0.5, pause * 1.5)

    def _late(self, why: str) -> DistributedError:
        waited = f"rank {self.seat.rank} has waited {self.timeout:g} s at {self.seat.host}:{self.seat.port}: {why}"
        hint = "start every process, or give init() a longer timeout"
        return _blamed(DistributedTimeoutError, f"{waited}; {hint}", 0)

    # Collectives

    def enter(self, what: str) -> None:
        """Come back when every process of the job is here, asking for the same."""
        self._check()
        self._gate.send(what)
        try:
            answer = self._gate.next(self.timeout + 4 * ANSWER)
        except TimeoutError:
            self._fail(self._late_at_gate(what))
        except BaseException as error:  # Ctrl-C: an answer may come yet, and would be taken for the next one's
            self.interrupted(error)
            raise
        else:
            if answer == "ok":
                self.last = what.partition("|")[0]
                return
            self._fail(_failed(parsed(answer)) if answer else self._rank_0_gone())
        self._check()

    def wait_at_most(self, seconds: float) -> None:
        """Seconds that this process waits for the others from now on."""
        self.timeout = seconds
        if self._coordinator is not None:
            self._coordinator.timeout = seconds

    def watch_over(self, what: str) -> None:
        """From now on the engine works; if it takes too long, the process is ended."""
        self.inside = (what, time.monotonic())

    def came_back(self) -> None:
        """The engine has done its work."""
        self.inside = None
        self._check()

    def _check(self) -> None:
        if self.failure is not None:
            self.told = True
            raise self.failure

    def raised(self, error: BaseException) -> None:
        """Let the others know that this process has raised an error, and fails."""
        if self.failure is None:
            self._alarm.say(raised=f"{type(error).__name__}: {error}"[:2000])
            self._news.wait(2)  # until rank 0 has told them

    def interrupted(self, error: BaseException) -> None:
        """This process has left a collective in the middle: the job cannot go on."""
        self.inside = None
        self.raised(error)
        self._fail(_blamed(DistributedError, f"rank {self.seat.rank} was interrupted in a collective", self.seat.rank))

    def forget(self) -> None:
        """In a forked child: let go of what is the parent's, without a word to anybody."""
        self._gate.close()
        self._alarm.close()
        if self._coordinator is not None:
            self._coordinator.forget()

    def left(self) -> None:
        """Let the others know that this process ends, though nobody has said so."""
        if self.failure is None:
            self._alarm.say(left=True)
            self._news.wait(2)

    def explained(self, error: Exception, what: str) -> DistributedError:
        """Why the engine's work has failed: another process, if there is news of one."""
        self.inside = None
        if not self._news.wait(GRACE):
            self.raised(error)
        failure, self.told = self.failure, True
        if failure is None or getattr(failure, "rank", None) == self.seat.rank:
            return DistributedError(f"{what} failed on rank {self.seat.rank}: {error}")
        return failure

    def close(self) -> None:
        """Hang up; with `enter` before it nobody misses this process."""
        self._gate.close()
        try:
            self._alarm.socket.shutdown(socket.SHUT_RDWR)  # which wakes the watcher
        except OSError:
            pass
        if threading.current_thread() is not self._watcher:
            self._watcher.join(5)
        self._alarm.close()
        if self._coordinator is not None:
            self._coordinator.join(1)  # the others may take longer, or never hang up

    def _fail(self, error: DistributedError) -> DistributedError:
        if self.failure is None:
            self.failure = error
        self._news.set()
        return self.failure

    def _late_at_gate(self, what: str) -> DistributedError:
        why = f"has not answered for {self.timeout:g} s, so rank {self.seat.rank} cannot enter {what.partition('|')[0]}"
        return _blamed(DistributedTimeoutError, f"rank 0 (at {self.seat.host}) {why}: it is stopped, or its host is", 0)

    def _rank_0_gone(self) -> DistributedError:
        why = "has gone: it was killed, or ended without shutdown()"
        return _blamed(DistributedError, f"rank 0 (at {self.seat.host}) {why}", 0)

    # Alarms

    def _watch(self) -> None:
        """Listen until the line closes; end the process if its engine cannot come back."""
        while True:
            try:
                ready, _, _ = select.select([self._alarm], [], [], 0.5)
                texts = self._alarm.read() if ready else []
            except (OSError, ValueError):
                return
            if texts is None:
                if self.failure is None and self.last != "shutdown":
                    self._fail(self._rank_0_gone())
                    self._leave_engine()
                return
            for news in map(parsed, texts):
                if "where" in news:
                    self._alarm.say(where=self._here())
                elif "error" in news:
                    self._fail(_failed(news))
                    self._leave_engine()
            self._watch_the_clock()

    def _watch_the_clock(self) -> None:
        inside = self.inside
        if inside is None or time.monotonic() - inside[1] < self.timeout:
            return
        self._alarm.say(stuck=inside[0])
        deadline = time.monotonic() + 2 * ANSWER
        while time.monotonic() < deadline and self.inside is inside:
            ready, _, _ = select.select([self._alarm], [], [], 0.2)
            for news in map(parsed, (self._alarm.read() or []) if ready else []):
                if "where" in news:
                    self._alarm.say(where=self._here())
                elif "error" in news:
                    self._fail(_failed(news))
                    deadline = 0
        if self.inside is inside:
            message = f"rank {self.seat.rank} was inside {inside[0]} for {self.timeout:g} s"
            if self.seat.rank:  # rank 0 would have said by now which rank does not answer
                message += f", and rank 0 (at {self.seat.host}) does not answer: it is stopped, or its host is"
            self._end(self._fail(_blamed(DistributedTimeoutError, message, 0 if self.seat.rank else None)))

    def _leave_engine(self) -> None:
        inside, deadline = self.inside, time.monotonic() + GRACE
        while inside is not None and self.inside is inside:
            if time.monotonic() > deadline:
                self._end(self.failure)
            time.sleep(0.05)

    def _here(self) -> str:
        """Where the main thread is, in the user's own file if there is one."""
        if self.inside is not None:
            return f"inside {self.inside[0]}"
        frames = sys._current_frames()  # pyright: ignore[reportPrivateUsage]  # nothing else tells of another thread
        frame = frames.get(threading.main_thread().ident or 0)
        while frame is not None:
            file = frame.f_code.co_filename
            foreign = "site-packages" in file or os.sep + "lib" + os.sep in file
            if not foreign and not str(frame.f_globals.get("__name__")).startswith("xdevice."):
                return f"at {file}:{frame.f_lineno}"
            frame = frame.f_back
        return "at work"

    def _end(self, error: BaseException | None) -> None:
        """End the process: its main thread is in an engine that does not come back."""
        print(f"xdevice: {error}", file=sys.stderr, flush=True)
        faulthandler.dump_traceback(all_threads=True)
        sys.stdout.flush()
        end_after_the_failed(self.seat)


def end_after_the_failed(seat: Seat) -> NoReturn:
    """End the process, but not first: other launchers take the first that ends for the one that has failed."""
    if seat.launcher != OURS:
        time.sleep(GRACE)  # they end this process as soon as the failed one has ended
    os._exit(PEER_FAILED)


def _failed(news: dict[str, Any]) -> DistributedError:
    cls = DistributedTimeoutError if news.get("late") else DistributedError
    return _blamed(cls, str(news.get("error", "rank 0 has refused this process")), news.get("rank"))


def _blamed(cls: type[DistributedError], message: str, rank: int | None) -> DistributedError:
    error = cls(message)
    error.rank = rank
    return error
