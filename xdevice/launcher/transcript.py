"""What a child has printed on both of its streams, in the order in which it came: the first lines and the last.

The streams are files, which are looked at again and again. The order of two lines of the same stream is exact; that of
two lines of different streams only if they were not printed between the same two looks.
"""

from __future__ import annotations

import os
from collections import deque
from typing import IO, TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

FIRST, LAST = 10, 40
"""Lines that are kept of the beginning and of the end."""

LONGEST = 2**12
"""Bytes that are kept of a line: its end, which is what a progress bar leaves."""

_PIECE = 2**20  # bytes that are read at once


class Line(NamedTuple):
    """A line, without its newline, and whether it was printed on stderr."""

    text: bytes
    is_error: bool


class Printed(NamedTuple):
    """The first lines, the number of those left out, and the last lines."""

    first: list[Line]
    left_out: int
    last: list[Line]


class Transcript:
    """The lines of a child's stdout and stderr; `look` takes in what has come, `end` the rest."""

    def __init__(self, files: Sequence[IO[bytes]]) -> None:
        self._streams = [_Stream(file, is_error=bool(i)) for i, file in enumerate(files)]
        self._first: list[Line] = []
        self._last: deque[Line] = deque(maxlen=LAST)
        self._count = 0
        self.newest = b""

    def look(self) -> None:
        """Take in what was printed since the last look, without moving the position at which the child writes."""
        if not hasattr(os, "pread"):  # Windows: only `end` can read
            return
        found = [(os.fstat(stream.file.fileno()), stream) for stream in self._streams]
        for status, stream in sorted(found, key=lambda each: each[0].st_mtime_ns):  # what was written last comes last
            while stream.position < status.st_size:
                piece = os.pread(stream.file.fileno(), _PIECE, stream.position)
                if not piece:  # the child has cut its own file short
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
        lines = stream.lines(piece)
        missing = FIRST - len(self._first)
        self._first += lines[:missing]
        self._last += lines[missing:][-LAST:]
        self._count += len(lines)
        self.newest = stream.rest.strip() or next((line.text for line in reversed(lines) if line.text.strip()), b"")


class _Stream:
    def __init__(self, file: IO[bytes], *, is_error: bool) -> None:
        self.file, self.is_error, self.position, self.rest = file, is_error, 0, b""

    def lines(self, piece: bytes) -> list[Line]:
        """The lines that end in this piece; the rest waits for its end."""
        self.position += len(piece)
        *whole, rest = (self.rest + piece).split(b"\n")
        self.rest = rest[-LONGEST:]
        return [Line(line[-LONGEST:], self.is_error) for line in whole]
