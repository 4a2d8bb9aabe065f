"""The first and the last lines of a child's output, however much it prints."""

import os
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, NamedTuple

FIRST, LAST = 10, 40  # lines that are kept of the beginning and of the end
LONGEST = 2**12  # bytes that are kept of a line: its end, which is what a progress bar leaves

_READ_AT_ONCE = 2**20  # bytes


class Line(NamedTuple):
    text: bytes  # without its newline
    is_error: bool  # whether it was printed on stderr


class Printed(NamedTuple):
    """What a child has printed, without the lines between the first and the last ones."""

    first: list[Line]
    left_out: int
    last: list[Line]


@dataclass
class _Stream:
    file: IO[bytes]
    is_error: bool
    position: int = 0  # in the file, up to which it has been read
    incomplete: bytes = b""  # a line that has not ended


class OutputBuffer:
    """The first and the last lines of a child's stdout and stderr, which are files.

    `update` reads what has been printed, `finish` the rest. The lines of one
    stream are in their order. Two lines of different streams are only if an
    update came between them.
    """

    def __init__(self, files: Sequence[IO[bytes]]) -> None:
        self._streams = [_Stream(file, is_error=bool(index)) for index, file in enumerate(files)]
        self._first: list[Line] = []
        self._last: deque[Line] = deque(maxlen=LAST)
        self._count = 0
        self.newest = b""

    def update(self) -> None:
        """Read what was printed since the last update, without moving the child's position."""
        if not hasattr(os, "pread"):  # Windows: only `finish` can read
            return
        statuses = [(os.fstat(stream.file.fileno()), stream) for stream in self._streams]
        # The stream that was written last comes last.
        for status, stream in sorted(statuses, key=lambda pair: pair[0].st_mtime_ns):
            if status.st_size < stream.position:  # the child has truncated its file
                stream.position = 0
                stream.incomplete = b""
            while stream.position < status.st_size:
                piece = os.pread(stream.file.fileno(), _READ_AT_ONCE, stream.position)
                if not piece:  # truncated meanwhile
                    break
                self._add(stream, piece)

    def finish(self) -> Printed:
        """Read the rest, once the child has ended."""
        self.update()
        for stream in self._streams:
            stream.file.seek(stream.position)
            while piece := stream.file.read(_READ_AT_ONCE):
                self._add(stream, piece)
            if stream.incomplete:
                self._add(stream, b"\n")
        left_out = self._count - len(self._first) - len(self._last)
        return Printed(self._first, left_out, list(self._last))

    def _add(self, stream: _Stream, piece: bytes) -> None:
        """Keep the first and the last lines that end in this piece, and count the others."""
        stream.position += len(piece)
        text = stream.incomplete + piece
        count = text.count(b"\n")
        *first, text = text.split(b"\n", FIRST - len(self._first))
        *last, incomplete = text.rsplit(b"\n", LAST + 1)
        if count > len(first) + len(last):
            del last[0]  # all lines between, in one piece
        lines = [Line(line[-LONGEST:], stream.is_error) for line in (*first, *last)]
        self._first += lines[: len(first)]
        self._last += lines[len(first) :]
        self._count += count
        stream.incomplete = incomplete[-LONGEST:]
        not_blank = (line.text for line in reversed(lines) if line.text.strip())
        self.newest = stream.incomplete.strip() or next(not_blank, self.newest)
