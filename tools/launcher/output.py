"""The output of a job's processes: on one screen, after their ranks, and unchanged in files.

All of it is bytes: the output of a process comes out unchanged, text or not.
"""

import os
import select
import sys
from collections import deque
from io import FileIO
from typing import IO

from rich.text import Text

from xdevice.tools.launcher.terminal import console

PIECE = 2**16  # bytes that are read at once: what a pipe holds
LONGEST = 64 * 2**20  # bytes of a line that stay together; a longer one is shown in parts
KEPT = 2**16  # bytes of the end of a stream that are kept to be shown again

_COLOURS = ("cyan", "magenta", "yellow", "green", "blue", "red")  # of the ranks
_FULL = 2**18  # bytes that wait for the screen before the processes have to wait, too
_WRITTEN_AT_ONCE = 2**12  # bytes that a pipe takes without blocking, once it is ready for any


class Lines:
    """Complete lines, each with a prefix, from a stream that comes in pieces."""

    def __init__(self, prefix: bytes) -> None:
        self._prefix = prefix
        self._incomplete = bytearray()  # the beginning of a line

    def feed(self, piece: bytes) -> bytes:
        """The lines that end in this piece; what follows them is kept until its line ends."""
        end = piece.rfind(b"\n") + 1
        if not end:
            self._incomplete += piece
            if len(self._incomplete) < LONGEST:
                return b""
            return self.end()
        lines = self._incomplete + piece[: end - 1]
        self._incomplete = bytearray(piece[end:])
        return self._with_prefixes(bytes(lines))

    def end(self) -> bytes:
        """The last line, if it did not end with a newline."""
        line = bytes(self._incomplete)
        self._incomplete = bytearray()
        if not line:
            return b""
        return self._with_prefixes(line)

    def _with_prefixes(self, lines: bytes) -> bytes:
        return self._prefix + lines.replace(b"\n", b"\n" + self._prefix) + b"\n"


class LiveLines(Lines):
    """Lines for a terminal: a progress bar, which ``\\r`` overwrites, is shown while it grows."""

    def __init__(self, prefix: bytes) -> None:
        clear_line = b"\r\x1b[K"  # where the progress bar of any rank may be
        super().__init__(clear_line + prefix)

    def feed(self, piece: bytes) -> bytes:
        lines = super().feed(piece)
        if b"\r" not in self._incomplete:
            return lines
        visible = _visible_part(bytes(self._incomplete))
        self._incomplete = bytearray(b"\r" + visible)
        return lines + self._prefix + visible

    def _with_prefixes(self, lines: bytes) -> bytes:
        if b"\r" in lines:
            lines = b"\n".join(_visible_part(line) for line in lines.split(b"\n"))
        return super()._with_prefixes(lines)


def _visible_part(line: bytes) -> bytes:
    """What remains visible of a line that is overwritten."""
    return line.rstrip(b"\r").rpartition(b"\r")[2]


class Screen:
    """The launcher's own stdout and stderr, written in the order in which output came.

    Writing never blocks, so that the launcher can stop the processes at any
    time. If the reader is slow, `full` is true, and the processes of the job
    have to wait.
    """

    def __init__(self) -> None:
        self.descriptors = {"out": _descriptor(sys.stdout), "err": _descriptor(sys.stderr)}
        self._queue: deque[tuple[int, memoryview]] = deque()
        self.waiting = 0  # bytes in the queue
        self.broken: OSError | None = None  # the reader has closed the pipe, or the disk is full

    def lines(self, name: str, rank: int) -> Lines:
        """The lines of that rank for this stream: coloured, and live, on a terminal."""
        prefix = f"[{rank}] "
        if not os.isatty(self.descriptors[name]):
            return Lines(prefix.encode())
        terminal = console(stderr=name == "err")
        with terminal.capture() as captured:
            colour = _COLOURS[rank % len(_COLOURS)]
            terminal.print(Text(prefix, style=colour), end="")
        return LiveLines(captured.get().encode())

    def show(self, name: str, text: bytes) -> None:
        if text and self.broken is None:
            self._queue.append((self.descriptors[name], memoryview(text)))
            self.waiting += len(text)
            self.write()

    @property
    def full(self) -> bool:
        return self.waiting > _FULL

    def write(self, timeout: float = 0.0) -> bool:
        """Write what can be written, waiting so many seconds for the first of it.

        Returns whether anything was written.
        """
        previously_waiting = self.waiting
        while self._queue and self._write_once(timeout):
            timeout = 0.0
        return self.waiting < previously_waiting

    def _write_once(self, timeout: float) -> bool:
        """Write a part of the first text in the queue; whether writing may go on."""
        descriptor, text = self._queue[0]
        poll = select.poll()  # `select.select` fails above descriptor 1023
        poll.register(descriptor, select.POLLOUT)
        if not poll.poll(1000 * timeout):
            return False
        try:
            written = os.write(descriptor, text[:_WRITTEN_AT_ONCE])
        except BlockingIOError:  # the pipe does not block, and is ready for fewer bytes
            return False
        except OSError as error:
            self.broken = error
            self.waiting = 0
            self._queue.clear()
            return False
        self.waiting -= written
        self._queue[0] = descriptor, text[written:]
        if written == len(text):
            self._queue.popleft()
        return True


class Stream:
    """One stream of one rank: read from a pipe, shown on the screen, and logged to a file."""

    def __init__(
        self, name: str, rank: int, pipe: IO[bytes], screen: Screen, log: FileIO | None
    ) -> None:
        self.name = name
        self.pipe = pipe
        self._screen = screen
        self._log = log
        self._tail = bytearray()
        self._lines = screen.lines(name, rank)

    def read(self) -> bool:
        """Read what has come, which blocks if nothing has; whether the stream goes on."""
        piece = os.read(self.pipe.fileno(), PIECE)
        self._tail += piece
        if len(self._tail) > 2 * KEPT:
            del self._tail[:-KEPT]
        if piece:
            lines = self._lines.feed(piece)
        else:
            lines = self._lines.end()
        self._screen.show(self.name, lines)
        if self._log is not None:
            self._write(self._log, piece)
        return bool(piece)

    def _write(self, log: FileIO, piece: bytes) -> None:
        """Write the piece to its file; a full disk ends the file and not the job."""
        try:
            view = memoryview(piece)
            while view:
                view = view[log.write(view) :]
        except OSError as error:
            log.close()
            self._log = None
            message = f"xdevice: {log.name!r} has no more of it: {error.strerror}\n"
            self._screen.show("err", message.encode())

    def last_lines(self, count: int) -> bytes:
        """The last lines that were printed, ended by a newline; empty if none were."""
        lines = bytes(self._tail[-KEPT:]).rstrip().split(b"\n")[-count:]
        if not any(lines):
            return b""
        return b"\n".join(lines) + b"\n"

    def close(self) -> None:
        self._screen.show(self.name, self._lines.end())
        self.pipe.close()
        if self._log is not None:
            self._log.close()


def _descriptor(stream: IO[str] | None) -> int:
    """The descriptor of a stream; that of the null device if the stream was closed before."""
    if stream is None:
        return os.open(os.devnull, os.O_WRONLY)
    stream.flush()
    return stream.fileno()
