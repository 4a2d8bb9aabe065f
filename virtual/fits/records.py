"""What each process of a program reports to ``xdevice fits``: a record in a folder.

A process writes its record when it starts and again when it ends. The most
memory that it has reserved is also in a file that it maps, so that it is
known of a process that was killed.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import pickle
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from xdevice.contract import MemoryUse

ENV = "XDEVICE_VIRTUAL_FITS"
"""The folder of the records, for the processes of a program that is measured."""

MOST_GPUS = 64

_OPTIONS, _STOPPED, _REFUSED = "options", "stopped", "refused"


class Options(NamedTuple):
    """How a program is measured."""

    stop_after: int | None = None  # the steps of an optimizer after which each process stops
    computes: bool = True  # values, and not only shapes


class Record(NamedTuple):
    """A process that may use GPUs, as far as it knows itself."""

    pid: int
    parent: int
    title: str  # what it runs
    begun: float  # in seconds, of one clock for all processes
    is_of_multiprocessing: bool
    gpus: tuple[int, ...]  # the index of each GPU that it sees, among those of the program
    ended: float | None = None  # ``None``: it has not, or it was killed
    error: str = ""  # how it failed
    stopped: str = ""  # how it was stopped
    is_program: bool = False  # the process that the command started, not a child of it
    uses: tuple[tuple[str, MemoryUse], ...] = ()  # by framework
    refused: tuple[str, ...] = ()  # the frameworks that it used and that are not measured
    started_pythons: tuple[str, ...] = ()
    started_others: tuple[str, ...] = ()
    totals: tuple[int, ...] = ()  # the most bytes reserved on each GPU that it sees


class Folder:
    """The records of a program's processes."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write_options(self, options: Options) -> None:
        _write(self.path / _OPTIONS, options)

    def options(self) -> Options:
        options: Options = _read(self.path / _OPTIONS)
        return options

    def note_stopped(self) -> None:
        """Note that a process has made the steps after which the program is to stop."""
        (self.path / _STOPPED).touch()

    def stopped_since(self) -> float | None:
        """The seconds since a process was stopped; ``None`` if none was."""
        with suppress(FileNotFoundError):
            return max(time.time() - (self.path / _STOPPED).stat().st_mtime, 0)
        return None

    def note_refused(self) -> None:
        """Note that the program has not begun, for a reason that was printed."""
        (self.path / _REFUSED).touch()

    def is_refused(self) -> bool:
        return (self.path / _REFUSED).exists()

    def new_record(self) -> RecordFile:
        name = f"{os.getpid()}-{time.monotonic_ns()}"
        return RecordFile(self.path / f"{name}.record", self.path / f"{name}.totals")

    def records(self) -> list[Record]:
        """The records in the order in which the processes began."""
        records: list[Record] = []
        for path in self.path.glob("*.record"):
            record: Record = _read(path)
            file = path.with_suffix(".totals")
            totals = file.read_bytes() if file.exists() else b""
            if totals:  # else the process has not written any yet
                array = (ctypes.c_int64 * MOST_GPUS).from_buffer_copy(totals)
                record = record._replace(totals=tuple(array))
            records.append(record)
        return sorted(records, key=lambda record: record.begun)


class RecordFile:
    def __init__(self, path: Path, path_of_totals: Path) -> None:
        self._path = path
        self._path_of_totals = path_of_totals

    def write(self, record: Record) -> None:
        _write(self._path, record)

    def map_totals(self) -> Any:
        """An array in a file: a 64-bit integer for each GPU."""
        with self._path_of_totals.open("x+b") as file:
            file.write(bytes(8 * MOST_GPUS))
            file.flush()
            mapped = mmap.mmap(file.fileno(), 8 * MOST_GPUS)
        return (ctypes.c_int64 * MOST_GPUS).from_buffer(mapped)

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)
        self._path_of_totals.unlink(missing_ok=True)


def _write(path: Path, value: object) -> None:
    """Write the file as a whole, so that a reader never finds a part of it."""
    part = path.with_suffix(".part")
    part.write_bytes(pickle.dumps(value))
    part.replace(path)


def _read(path: Path) -> Any:
    return pickle.loads(path.read_bytes())
