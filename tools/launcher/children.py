"""Children: started, watched and stopped, together with all processes that they start themselves.

Each leads a session of its own. So Ctrl-C reaches this process alone, which
passes it on. Output goes into temporary files: no pipe can fill up, however
much is printed.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import IO, Literal, TypeAlias

import psutil

from xdevice.distributed.deadlines import TERMINATION
from xdevice.tools.launcher.output_buffer import OutputBuffer, Printed
from xdevice.tools.launcher.process_tree import ProcessTree, Signals, reaped

Status = Literal["waiting", "running", "ok", "failed", "timed out", "flooded", "stopped"]

# Bytes of each stream that are shown and compared: the first of stdout, the
# last of stderr.
KEPT = 2**20
FLOOD = 256 * 2**20  # bytes of output at which a child is stopped, before it fills the disk

_TICK = 0.02  # seconds between two rounds of watching, at most
_FIRST_TICK = 0.001  # seconds; a short run does not wait long to be noticed
_SAMPLING = 0.05  # the fraction of this process's time that measuring memory may take


class Child:
    """A process and those that it starts; it has ended when the last of them has."""

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        env: Mapping[str, str] | None = None,
        exit_words: Mapping[int, str] | None = None,
    ) -> None:
        """``exit_words`` are what the program means by its exit statuses."""
        self.name = name
        self.exit_words = exit_words or {}
        self.argv = list(argv)
        self.env = env
        self.status: Status = "waiting"
        self.exit_status: int | None = None  # as subprocess: negative is a signal
        self.seconds = 0.0
        self.peak_memory: int | None = None
        self._spools: list[IO[bytes]] = []  # the files with its output, from `start` to `output`
        self._stop_cause: Status | None = None
        self._kill_at: float | None = None
        self._next_sample = 0.0

    def start(self, outer_marks: str | None = None) -> None:
        """Start it, with nothing to read on its stdin.

        ``outer_marks`` are the marks of the process trees that this one is part of.
        """
        self._tree = ProcessTree(outer_marks=outer_marks)
        self._spools = [tempfile.TemporaryFile(), tempfile.TemporaryFile()]  # noqa: SIM115  (closed in `output`)
        self._buffer = OutputBuffer(self._spools)
        self._inherited_peak = _peak_of_this_process()
        self._started = time.perf_counter()
        environment = os.environ if self.env is None else self.env
        self._process = self._tree.start(self.argv, environment, *self._spools)
        self.status = "running"

    @property
    def ended(self) -> bool:
        return self.status not in ("waiting", "running")

    def watch(self, timeout: float | None) -> None:
        """Measure it once, stop it if it is over a limit, and notice its end."""
        now = time.perf_counter()
        self._buffer.update()
        if self.exit_status is None:
            self.seconds = now - self._started
            if now >= self._next_sample:
                self._sample_memory()
            self.exit_status = self._reap()
        if self.exit_status is None:
            self._check_limits(timeout)
            must_be_killed = self._kill_at is not None and now >= self._kill_at
            if not must_be_killed:
                return
        self._end(now)

    def stop(self, cause: Status) -> None:
        """Ask its process tree to stop, once; `watch` kills what does not."""
        if self.status == "waiting":
            self.status = cause
        elif self._kill_at is None:
            self._stop_cause = self._stop_cause or cause
            self._kill_at = time.perf_counter() + TERMINATION
            self._tree.ask_to_stop()

    def kill(self) -> None:
        if self.status == "running":
            self._tree.kill()
            self._process.wait()

    @property
    def newest(self) -> bytes:
        """The newest line of its output."""
        if self.status == "waiting":
            return b""
        return self._buffer.newest

    def printed(self) -> Printed:
        """What it has printed, in order; before `output`, which closes the files."""
        if not self._spools:  # it has not been started
            return Printed([], 0, [])
        return self._buffer.finish()

    def output(self) -> tuple[bytes, bytes, bool]:
        """The first bytes of stdout, the last of stderr, and whether stdout had more."""
        if not self._spools:
            return b"", b"", False
        out, err = self._spools
        self._spools = []
        with out, err:
            out.seek(0)
            stdout = out.read(KEPT)
            has_more = bool(out.read(1))
            size = err.seek(0, os.SEEK_END)
            err.seek(max(0, size - KEPT))
            return stdout, err.read(), has_more

    def _check_limits(self, timeout: float | None) -> None:
        if timeout is not None and self.seconds > timeout:
            self.stop("timed out")
        elif any(os.fstat(spool.fileno()).st_size > FLOOD for spool in self._spools):
            self.stop("flooded")

    def _end(self, now: float) -> None:
        """The child has ended, or must: stop the rest of its process tree."""
        if self._kill_at is not None and now >= self._kill_at:
            tree_is_alive = self._tree.kill()
        else:
            tree_is_alive = bool(self._tree.members())
        if tree_is_alive:
            if self._kill_at is None:  # the child has ended by itself
                self._kill_at = now + TERMINATION
                self._tree.ask_to_stop()
            return
        if self.exit_status is None:
            self.exit_status = self._reap()
        if self.exit_status is not None:
            if self._stop_cause:
                self.status = self._stop_cause
            elif self.exit_status == 0:
                self.status = "ok"
            else:
                self.status = "failed"

    def _sample_memory(self) -> None:
        began = time.perf_counter()
        total = 0
        for process in self._tree.find_descendants(self._process.pid):
            with suppress(psutil.Error):  # it has just ended
                total += process.memory_info().rss
        self.peak_memory = max(self.peak_memory or 0, total) or None
        ended = time.perf_counter()
        self._next_sample = ended + max(_TICK, (ended - began) / _SAMPLING)

    def _reap(self) -> int | None:
        """The exit status if the child has ended; the kernel then knows its true peak memory."""
        if not hasattr(os, "wait4"):
            return self._process.poll()
        pid, status, usage = os.wait4(self._process.pid, os.WNOHANG)
        if pid == 0:
            return None
        self._tree.leader_ended(pid)
        self._process.returncode = os.waitstatus_to_exitcode(status)
        peak = usage.ru_maxrss
        if sys.platform != "darwin":  # elsewhere it is in KiB
            peak *= 1024
        if peak > self._inherited_peak:  # a lower peak cannot be told from the inherited one
            self.peak_memory = max(self.peak_memory or 0, peak)
        return self._process.returncode


Show: TypeAlias = Callable[[Sequence[Child]], None]


def run_all(children: Sequence[Child], jobs: int, timeout: float | None, show: Show) -> int | None:
    """Run the children, ``jobs`` at once, each for ``timeout`` seconds at most.

    Returns the signal that has stopped them early, if one has.
    """
    tree = ProcessTree()
    tick = _FIRST_TICK
    with Signals() as signals, reaped(tree):
        try:
            while not all(child.ended for child in children):
                for child in children:
                    if child.status == "running":
                        child.watch(timeout)
                    if signals.received and not child.ended:
                        child.stop("stopped")
                    elif child.status == "waiting" and _running(children) < jobs:
                        child.start(tree.marks)
                show(children)
                if _running(children):
                    time.sleep(tick)
                    tick = min(_TICK, 1.2 * tick)
        finally:  # also after an error of this process itself
            for child in children:
                child.kill()
    return signals.received


def _running(children: Sequence[Child]) -> int:
    return sum(child.status == "running" for child in children)


def _peak_of_this_process() -> int:
    """The peak memory that a new process inherits: it shares this one's memory until it execs."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as status:
            for line in status:
                if line.startswith("VmHWM"):
                    return int(line.split()[1]) * 1024
    except OSError:  # not Linux
        pass
    return int(psutil.Process().memory_info().rss)  # the present size is the nearest that is known
