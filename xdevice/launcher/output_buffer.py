"""The first and the last lines that a child has printed on both of its streams, in the order in which they came.

The streams are files, which are looked at again and again. The order of two lines of the same stream is exact; that of
two lines of different streams only if they were not printed between the same two looks.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from typing import IO, NamedTuple

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


class OutputBuffer:
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
            if status.st_size < stream.position:  # the child has cut its own file short, and begins again
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
        count, first, last = stream.lines(piece, FIRST - len(self._first))
        self._first += first
        self._last += last
        self._count += count
        shown = (line.text for line in (*reversed(last), *reversed(first)) if line.text.strip())
        self.newest = stream.rest.strip() or next(shown, self.newest)


class _Stream:
    def __init__(self, file: IO[bytes], *, is_error: bool) -> None:
        self.file, self.is_error, self.position, self.rest = file, is_error, 0, b""

    def lines(self, piece: bytes, missing: int) -> tuple[int, list[Line], list[Line]]:
        """How many lines end in this piece, the first that are missing, and the last; the rest waits for its end.

        The others are only counted: there may be a million of them.
        """
        self.position += len(piece)
        text = self.rest + piece
        count = text.count(b"\n")
        *first, text = text.split(b"\n", missing)
        *last, rest = text.rsplit(b"\n", LAST + 1)
        if count > len(first) + len(last):
            del last[0]  # those before the last ones, in one piece
        self.rest = rest[-LONGEST:]
        return count, self._kept(first), self._kept(last)

    def _kept(self, lines: list[bytes]) -> list[Line]:
        return [Line(line[-LONGEST:], self.is_error) for line in lines]
