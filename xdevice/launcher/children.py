"""Children: started, watched and stopped, together with all processes that they start themselves.

Each leads a session of its own, so that Ctrl-C reaches this process alone, which passes it on.
Output goes into temporary files: no pipe can fill up, however much is printed.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Literal, NamedTuple

import psutil

from xdevice.distributed.failures import TERMINATION
from xdevice.launcher.process_tree import ProcessTree, Signals, reaped

Status = Literal["waiting", "running", "ok", "failed", "timed out", "flooded", "stopped"]

KEPT = (
    2**20
)  # bytes of each stream that are shown and compared: the first of stdout, the last of stderr
FLOOD = 256 * 2**20  # bytes of output at which a child is stopped, before it fills the disk
FIRST, LAST = 10, 40  # lines that are kept of the beginning and of the end
LONGEST = 2**12  # bytes that are kept of a line: its end, which is what a progress bar leaves

_PIECE = 2**20  # bytes that are read at once
_TICK = 0.02
_SAMPLING = 0.05  # the part of this process's time that measuring memory may take


class Line(NamedTuple):
    text: bytes  # without its newline
    is_error: bool  # whether it was printed on stderr


class Printed(NamedTuple):
    first: list[Line]
    left_out: int
    last: list[Line]


@dataclass
class _Stream:
    file: IO[bytes]
    is_error: bool
    position: int = 0
    rest: bytes = b""  # a line that has not ended


class OutputBuffer:
    """The first and the last lines of a child's stdout and stderr; `look` takes in what has come, `end` the rest.

    The streams are files. The order of two lines of the same stream is exact; that of two lines of
    different streams only if they were not printed between the same two looks.
    """

    def __init__(self, files: Sequence[IO[bytes]]) -> None:
        self._streams = [_Stream(file, bool(i)) for i, file in enumerate(files)]
        self._first: list[Line] = []
        self._last: deque[Line] = deque(maxlen=LAST)
        self._count = 0
        self.newest = b""

    def look(self) -> None:
        """Take in what was printed since the last look, without moving the position at which the child writes."""
        if not hasattr(os, "pread"):  # Windows: only `end` can read
            return
        found = [(os.fstat(stream.file.fileno()), stream) for stream in self._streams]
        for status, stream in sorted(
            found, key=lambda each: each[0].st_mtime_ns
        ):  # what was written last comes last
            if (
                status.st_size < stream.position
            ):  # the child has cut its own file short, and begins again
                stream.position, stream.rest = 0, b""
            while stream.position < status.st_size:
                piece = os.pread(stream.file.fileno(), _PIECE, stream.position)
                if not piece:  # cut short meanwhile
                    break
                self._take(stream, piece)

    def end(self) -> Printed:
        """Take in the rest, once the child has ended."""
        self.look()
        for stream in self._streams:
            stream.file.seek(stream.position)
            while piece := stream.file.read(_PIECE):
                self._take(stream, piece)
            if stream.rest:
                self._take(stream, b"\n")
        kept = len(self._first) + len(self._last)
        return Printed(self._first, self._count - kept, list(self._last))

    def _take(self, stream: _Stream, piece: bytes) -> None:
        """Take in the lines that end in this piece; those between the first and the last ones are only counted."""
        stream.position += len(piece)
        text = stream.rest + piece
        number = text.count(b"\n")
        *first, text = text.split(b"\n", FIRST - len(self._first))
        *last, rest = text.rsplit(b"\n", LAST + 1)
        if number > len(first) + len(last):
            del last[0]  # those before the last ones, in one piece
        lines = [Line(line[-LONGEST:], stream.is_error) for line in (*first, *last)]
        self._first += lines[: len(first)]
        self._last += lines[len(first) :]
        self._count += number
        stream.rest = rest[-LONGEST:]
        shown = (line.text for line in reversed(lines) if line.text.strip())
        self.newest = stream.rest.strip() or next(shown, self.newest)


class Child:
    """One process and those that it starts; it has ended when the last of them has."""

    def __init__(
        self, name: str, argv: Sequence[str], env: Mapping[str, str] | None = None
    ) -> None:
        self.name, self.argv, self.env = name, list(argv), env
        self.status: Status = "waiting"
        self.exit_status: int | None = None  # as subprocess: negative is a signal
        self.seconds = 0.0
        self.peak_memory: int | None = None
        self._spools: list[IO[bytes]] = []  # the files with its output, from `start` to `output`
        self._cause: Status | None = None  # why it was asked to stop
        self._kill_at: float | None = None
        self._next_sample = 0.0

    def start(self, around: str | None = None) -> None:
        """Start it, with nothing to read on its stdin; ``around`` are the marks of the process trees around it."""
        self._tree = ProcessTree(around=around)
        self._spools = [tempfile.TemporaryFile(), tempfile.TemporaryFile()]  # noqa: SIM115  (closed in `output`)
        self._buffer = OutputBuffer(self._spools)
        self._our_peak = _peak_of_this_process()
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
        self._buffer.look()
        if self.exit_status is None:
            self.seconds = now - self._started
            if now >= self._next_sample:
                self._sample()
            self.exit_status = self._reap()
            if self.exit_status is None:
                if timeout is not None and self.seconds > timeout:
                    self.stop("timed out")
                elif any(os.fstat(spool.fileno()).st_size > FLOOD for spool in self._spools):
                    self.stop("flooded")
                if self._kill_at is None or now < self._kill_at:
                    return
        self._end(now)

    def stop(self, cause: Status) -> None:
        """Ask its process tree to stop, once; `watch` kills what is left."""
        if self.status == "waiting":
            self.status = cause
        elif self._kill_at is None:
            self._cause = self._cause or cause
            self._kill_at = time.perf_counter() + TERMINATION
            self._tree.ask_to_stop()

    def kill(self) -> None:
        if self.status == "running":
            self._tree.kill()
            self._process.wait()

    @property
    def newest(self) -> bytes:
        return self._buffer.newest if self.status != "waiting" else b""

    def printed(self) -> Printed:
        """What it has printed, in order; before `output`, which closes the files."""
        return self._buffer.end() if self._spools else Printed([], 0, [])

    def output(self) -> tuple[bytes, bytes, bool]:
        """The first bytes of stdout, the last of stderr, and whether stdout had more."""
        if not self._spools:
            return b"", b"", False
        (out, err), self._spools = self._spools, []
        with out, err:
            out.seek(0)
            first, more = out.read(KEPT), bool(out.read(1))
            err.seek(max(0, err.seek(0, os.SEEK_END) - KEPT))
            return first, err.read(), more

    def _end(self, now: float) -> None:
        """It has ended, unless processes of its tree are left: they are asked to stop too, and waited for."""
        late = self._kill_at is not None and now >= self._kill_at
        if self._tree.kill() if late else self._tree.members():
            if self._kill_at is None:  # the child itself has ended without being asked
                self._kill_at = now + TERMINATION
                self._tree.ask_to_stop()
            return
        if self.exit_status is None:
            self.exit_status = self._reap()
        if self.exit_status is not None:
            self.status = self._cause or ("ok" if self.exit_status == 0 else "failed")

    def _sample(self) -> None:
        began, total = time.perf_counter(), 0
        for process in self._tree.see(self._process.pid):
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
        self._tree.ended(pid)
        self._process.returncode = os.waitstatus_to_exitcode(status)
        peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        if (
            peak > self._our_peak
        ):  # a new process inherits this one's peak, which would hide a lower one
            self.peak_memory = max(self.peak_memory or 0, peak)
        return self._process.returncode


Show = Callable[[Sequence[Child]], None]


def run_all(children: Sequence[Child], jobs: int, timeout: float | None, show: Show) -> int | None:
    """Run the children, ``jobs`` at once, for ``timeout`` seconds each at most; the signal that cut it short."""
    tree = ProcessTree()
    with Signals() as signals, reaped(tree):
        try:
            while not all(child.ended for child in children):
                for child in children:
                    if child.status == "running":
                        child.watch(timeout)
                    if signals.received and not child.ended:
                        child.stop("stopped")
                    elif (
                        child.status == "waiting"
                        and sum(c.status == "running" for c in children) < jobs
                    ):
                        child.start(tree.marks)
                show(children)
                time.sleep(_TICK)
        finally:  # also after an error of this process itself
            for child in children:
                child.kill()
    return signals.received


def _peak_of_this_process() -> int:
    """The peak that a new process starts with: that of this one, whose memory it shares until it execs."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
    except (OSError, StopIteration):  # not Linux: the present size is the nearest that is known
        return int(psutil.Process().memory_info().rss)
