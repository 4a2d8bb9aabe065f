"""What the processes of a job print: on one screen, each line with its rank before it, and unchanged in files.

All of it is bytes: what a process prints comes out unchanged, text or not.
"""

import os
import select
import sys
from collections import deque
from io import FileIO
from typing import IO

from rich.text import Text

from xdevice.launcher.terminal import console

PIECE = 2**16  # bytes that are read at once: what a pipe holds
LONGEST = 64 * 2**20  # bytes of a line that stay together; a longer one is shown in parts
KEPT = 2**16  # bytes of the end of a stream that are kept to be shown again
_COLOURS = ("cyan", "magenta", "yellow", "green", "blue", "red")  # of the ranks
_FULL = 2**18  # bytes that wait for the screen before the processes have to wait, too
_AT_ONCE = 2**12  # bytes that a pipe takes without blocking, once it is ready for any


class Lines:
    """Whole lines, each with a prefix, from a stream that comes in pieces."""

    def __init__(self, prefix: bytes) -> None:
        self._prefix, self._rest = prefix, bytearray()

    def feed(self, piece: bytes) -> bytes:
        """The lines that end in this piece; the rest waits for its end."""
        cut = piece.rfind(b"\n") + 1
        if not cut:
            self._rest += piece
            return b"" if len(self._rest) < LONGEST else self.end()
        body = self._rest + piece[: cut - 1]
        self._rest = bytearray(piece[cut:])
        return self._shown(bytes(body))

    def end(self) -> bytes:
        """The last line, if it did not end with a newline."""
        body, self._rest = bytes(self._rest), bytearray()
        return self._shown(body) if body else b""

    def _shown(self, body: bytes) -> bytes:
        return self._prefix + body.replace(b"\n", b"\n" + self._prefix) + b"\n"


class LiveLines(Lines):
    """Lines for a terminal: one that is written over with ``\\r``, a progress bar, is shown while it grows."""

    def __init__(self, prefix: bytes) -> None:
        super().__init__(
            b"\r\x1b[K" + prefix
        )  # clears what the last progress bar, of any rank, has left

    def feed(self, piece: bytes) -> bytes:
        lines = super().feed(piece)
        if b"\r" not in self._rest:
            return lines
        state = _last_state(bytes(self._rest))
        self._rest = bytearray(b"\r" + state)
        return lines + self._prefix + state

    def _shown(self, body: bytes) -> bytes:
        return super()._shown(
            b"\n".join(map(_last_state, body.split(b"\n"))) if b"\r" in body else body
        )


def _last_state(line: bytes) -> bytes:
    """What remains visible of a line that is written over."""
    return line.rstrip(b"\r").rpartition(b"\r")[2]


class Screen:
    """The launcher's own stdout and stderr, written in the order in which output came, without blocking.

    If the reader is slow, `full` is true, and the processes of the job have to wait. The launcher
    does not, so that it can stop them at any time.
    """

    def __init__(self) -> None:
        self.descriptors = {"out": _descriptor(sys.stdout), "err": _descriptor(sys.stderr)}
        self._queue: deque[tuple[int, memoryview]] = deque()
        self.waiting = 0  # bytes
        self.broken: OSError | None = None  # the reader has closed the pipe, or the disk is full

    def lines(self, name: str, rank: int) -> Lines:
        """The lines of that rank for this stream: coloured, and live, on a terminal."""
        prefix = f"[{rank}] "
        if not os.isatty(self.descriptors[name]):
            return Lines(prefix.encode())
        out = console(stderr=name == "err")
        with out.capture() as captured:
            out.print(Text(prefix, style=_COLOURS[rank % len(_COLOURS)]), end="")
        return LiveLines(captured.get().encode())

    def show(self, name: str, text: bytes) -> None:
        if text and self.broken is None:
            self._queue.append((self.descriptors[name], memoryview(text)))
            self.waiting += len(text)
            self.write()

    @property
    def full(self) -> bool:
        return self.waiting > _FULL

    def write(self, patience: float = 0.0) -> bool:
        """Write what can be written, waiting so many seconds for the first of it; whether anything was."""
        before = self.waiting
        while self._queue:
            descriptor, text = self._queue[0]
            poll = select.poll()  # `select.select` ends at descriptor 1023
            poll.register(descriptor, select.POLLOUT)
            if not poll.poll(1000 * patience):
                break
            patience = 0.0
            try:
                written = os.write(descriptor, text[:_AT_ONCE])
            except BlockingIOError:  # ready for fewer bytes than these: the pipe does not block
                break
            except OSError as error:
                self.broken, self.waiting = error, 0
                self._queue.clear()
                break
            self.waiting -= written
            self._queue[0] = descriptor, text[written:]
            if written == len(text):
                self._queue.popleft()
        return self.waiting < before


class Stream:
    """One stream of one rank, on its way from a pipe to the screen, and to a file if there is one."""

    def __init__(
        self, name: str, rank: int, pipe: IO[bytes], screen: Screen, log: FileIO | None
    ) -> None:
        self.name, self.pipe, self._screen, self._log = name, pipe, screen, log
        self._tail, self._lines = bytearray(), screen.lines(name, rank)

    def read(self) -> bool:
        """Read what has come, which blocks if nothing has; whether the stream goes on."""
        piece = os.read(self.pipe.fileno(), PIECE)
        self._tail += piece
        if len(self._tail) > 2 * KEPT:
            del self._tail[:-KEPT]
        self._screen.show(self.name, self._lines.feed(piece) if piece else self._lines.end())
        if self._log is not None:
            self._write(self._log, piece)
        return bool(piece)

    def _write(self, log: FileIO, piece: bytes) -> None:
        """Write the piece into its file; a full disk ends the file and not the job."""
        try:
            view = memoryview(piece)
            while view:
                view = view[log.write(view) :]
        except OSError as error:
            log.close()
            self._log = None
            self._screen.show(
                "err", f"xdevice: {log.name!r} has no more of it: {error.strerror}\n".encode()
            )

    def last_lines(self, count: int) -> bytes:
        """The last lines that were printed, ended by a newline; empty if none were."""
        lines = bytes(self._tail[-KEPT:]).rstrip().split(b"\n")[-count:]
        return b"\n".join(lines) + b"\n" if any(lines) else b""

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
