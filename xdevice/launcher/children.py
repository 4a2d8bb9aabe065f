"""Children: started, watched and stopped, together with all that they start themselves.

Each child leads a session of its own, so that the terminal's Ctrl-C reaches only us; we pass it on as
SIGTERM, and as SIGKILL to whoever is still there after a grace. Output goes into temporary files:
no pipe can fill up, whatever is printed and however much.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any, Literal

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping, Sequence
    from types import FrameType

Status = Literal["waiting", "running", "ok", "failed", "timed out", "flooded", "stopped"]

GRACE = 3.0
"""Seconds between SIGTERM and SIGKILL."""

KEPT = 2**20
"""Bytes of each stream that are shown and compared: the first of stdout, the last of stderr."""

FLOOD = 256 * 2**20
"""Bytes of output at which a child is stopped, before it fills the disk."""

_TICK = 0.02
_SAMPLING = 0.05  # the part of our time that measuring memory may take


class Child:
    """One process and its descendants; it has ended when the last of them has."""

    def __init__(self, name: str, argv: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        self.name, self.argv, self.env = name, list(argv), env
        self.status: Status = "waiting"
        self.exit_status: int | None = None  # as subprocess: negative is a signal
        self.seconds = 0.0
        self.peak_memory: int | None = None
        self._family: dict[int, psutil.Process] = {}
        self._cause: Status | None = None  # why we have told it to stop
        self._kill_at: float | None = None
        self._next_sample = 0.0

    def start(self) -> None:
        """Start it, with nothing to read on its stdin."""
        self._spools = [tempfile.TemporaryFile(), tempfile.TemporaryFile()]  # noqa: SIM115  (closed in `output`)
        self._our_peak = _peak_of_this_process()
        self._started = time.perf_counter()
        self._process = subprocess.Popen(
            self.argv,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=self._spools[0],
            stderr=self._spools[1],
            start_new_session=True,
        )
        self.status = "running"

    @property
    def ended(self) -> bool:
        return self.status not in ("waiting", "running")

    def watch(self, timeout: float | None) -> None:
        """Look after it once: measure, stop what is over a limit, notice the end."""
        now = time.perf_counter()
        if self.exit_status is None:
            self.seconds = now - self._started
            if now >= self._next_sample:
                self._sample()
            self.exit_status = self._reap()
            if self.exit_status is None:
                self._check_limits(timeout)
                if self._kill_at is None or now < self._kill_at:
                    return
        self._end(now)

    def stop(self, cause: Status) -> None:
        """Ask it and its descendants to stop, once; `watch` kills those that do not."""
        if self.status == "waiting":
            self.status = cause
        elif self._kill_at is None:
            self._cause = self._cause or cause
            self._kill_at = time.perf_counter() + GRACE
            self._sample()  # whoever has left the session is found only as long as its parent lives
            self._signal("terminate")

    def kill(self) -> None:
        """Kill it and its descendants at once."""
        if self.status == "running":
            self._signal("kill")
            self._process.wait()

    def output(self) -> tuple[bytes, bytes, bool]:
        """The first bytes of stdout, the last of stderr, and whether stdout had more."""
        if not hasattr(self, "_spools"):
            return b"", b"", False
        out, err = self._spools
        out.seek(0)
        first = out.read(KEPT)
        more = bool(out.read(1))
        err.seek(max(0, err.seek(0, os.SEEK_END) - KEPT))
        last = err.read()
        out.close()
        err.close()
        del self._spools
        return first, last, more

    def _check_limits(self, timeout: float | None) -> None:
        if timeout is not None and self.seconds > timeout:
            self.stop("timed out")
        elif any(os.fstat(spool.fileno()).st_size > FLOOD for spool in self._spools):
            self.stop("flooded")

    def _end(self, now: float) -> None:
        """Ended, unless descendants linger: these are told to stop too, and waited for."""
        if self._members():
            if self._kill_at is None:  # the child itself has ended in peace
                self._kill_at = now + GRACE
                self._signal("terminate")
            elif now >= self._kill_at:
                self._signal("kill")
            return
        if self.exit_status is None:
            self.exit_status = self._reap()
        if self.exit_status is not None:
            self.status = self._cause or ("ok" if self.exit_status == 0 else "failed")

    def _sample(self) -> None:
        """Add up the memory of the family, and remember who belongs to it."""
        began, total = time.perf_counter(), 0
        try:
            leader = psutil.Process(self._process.pid)
            for process in (leader, *leader.children(recursive=True)):
                self._family.setdefault(process.pid, process)
                total += process.memory_info().rss
        except psutil.Error:  # somebody ended meanwhile
            pass
        if total:
            self.peak_memory = max(self.peak_memory or 0, total)
        ended = time.perf_counter()
        self._next_sample = ended + max(_TICK, (ended - began) / _SAMPLING)

    def _reap(self) -> int | None:
        """The exit status if the child has ended; the kernel then knows its true peak memory."""
        if not hasattr(os, "wait4"):
            return self._process.poll()
        pid, status, usage = os.wait4(self._process.pid, os.WNOHANG)
        if pid == 0:
            return None
        self._process.returncode = os.waitstatus_to_exitcode(status)
        peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        if peak > self._our_peak:  # a new process inherits our own peak, which would hide a lower one
            self.peak_memory = max(self.peak_memory or 0, peak)
        return self._process.returncode

    def _members(self) -> list[psutil.Process]:
        """Who of the family is still alive: all of the session, and those known to have left it."""
        found: dict[int, Any] = {**of_sessions({self._process.pid}), **self._family}
        found.setdefault(self._process.pid, self._leader())
        return [p for p in found.values() if p is not None and alive(p)]

    def _leader(self) -> Any:
        try:
            return psutil.Process(self._process.pid) if self.exit_status is None else None
        except psutil.Error:
            return None

    def _signal(self, method: Literal["terminate", "kill"]) -> None:
        for process in self._members():
            try:
                getattr(process, method)()
            except psutil.Error:
                continue


class Signals:
    """Notes SIGINT, SIGTERM and SIGHUP instead of dying of them, so that no child is left behind."""

    def __init__(self) -> None:
        self.received: int | None = None
        self.times = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is not signal.SIG_IGN:  # nohup means it
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *exc_info: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.received = number
        self.times += 1


def run_all(
    children: Sequence[Child],
    jobs: int,
    timeout: float | None,
    show: Callable[[Sequence[Child]], None] = lambda children: None,
) -> int | None:
    """Run the children, ``jobs`` at once, to their ends; the signal that cut it short, if one did.

    ``timeout`` is in seconds for each. ``show`` is called again and again to display the progress.
    """
    with Signals() as signals:
        try:
            while not all(child.ended for child in children):
                running = [child for child in children if child.status == "running"]
                for child in running:
                    child.watch(timeout)
                    if signals.received:
                        child.stop("stopped")
                waiting = [child for child in children if child.status == "waiting"]
                for child in waiting:
                    if signals.received:
                        child.stop("stopped")
                    elif sum(c.status == "running" for c in children) < jobs:
                        child.start()
                show(children)
                time.sleep(_TICK)
        finally:  # an error of our own leaves nobody behind either
            for child in children:
                child.kill()
    return signals.received


def of_sessions(leaders: Container[int]) -> dict[int, psutil.Process]:
    """Who belongs to the sessions of these leaders, by process id; nobody where there are no sessions."""
    found = {}
    for pid in psutil.pids() if hasattr(os, "getsid") else ():
        try:
            if os.getsid(pid) in leaders:
                found[pid] = psutil.Process(pid)
        except (OSError, psutil.Error):
            continue
    return found


def alive(process: psutil.Process) -> bool:
    """Whether it still runs; one that has only not been waited for does not."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _peak_of_this_process() -> int:
    """What a new process starts with as its peak: that of the memory which it shares with us until it execs."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
    except (OSError, StopIteration):  # no Linux: what we hold now is the nearest that is known
        return int(psutil.Process().memory_info().rss)
