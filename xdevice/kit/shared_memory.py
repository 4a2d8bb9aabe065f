"""Collectives of the processes of one host through memory that they share, without any socket.

Each process writes its vector into a row of a file that all have mapped. After a barrier each reduces its own part of
the columns, or all of a short vector, always in the order of ranks: the same bits in every process and run. The file
and the barrier's FIFOs are in a folder of mode 0700, with a name that cannot be guessed, which is removed as soon as
every process has opened what is in it: the system frees the memory with the last process, however that ends.
"""

import mmap
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree
from typing import Any

import numpy as np

from xdevice.errors import DistributedError, DistributedTimeoutError
from xdevice.kit.reducing import summed_in

Array = np.ndarray[Any, Any]

_BYTES = (
    16 << 20
)  # for any number of processes: it fits into a processor's cache and a container's /dev/shm
_SMALL = (
    1 << 16
)  # bytes of all rows together that each process reduces alone, which is quicker than another barrier
_ROW = 4096  # a row's length is a multiple of it
_LOOK = 0.005  # seconds between checks for the folder, which rank 0 makes
_COMBINED = {"sum": np.add, "mean": np.add, "max": np.maximum, "min": np.minimum}


class SharedMemory:
    """One process's part in the collectives; ``name`` is a secret of the job, and unlike that of any other job.

    `DistributedTimeoutError`: rank 0 does not make the memory within ``patience`` seconds, or not where this one looks.
    """

    def __init__(self, rank: int, size: int, name: str, patience: float) -> None:
        self.rank, self.size, self._patience = rank, size, patience
        self._room = max(
            _ROW, _BYTES // (2 * size) // _ROW * _ROW
        )  # of a row; each half has one row per process
        self._half = 0
        self._to: list[
            int
        ] = []  # FIFOs: rank 0 has one for every other process, the others have rank 0's
        self._from: list[int] = []
        folder = _parent() / f"xdevice-{name}"
        try:
            self._memory = self._made(folder) if rank == 0 else self._opened(folder)
        except BaseException:
            self.close()
            raise

    def all_reduce(self, vector: Array, op: str) -> Array:
        """The ``sum``, ``mean``, ``max`` or ``min`` of every process's vector; NaN where one has NaN.

        Floating-point numbers of 16 bits and fewer are added up in ``float32`` and rounded once.
        """
        found = np.empty_like(vector)
        for piece, rows in self._pieces(vector):
            rows[self.rank] = vector[piece]
            self._barrier()
            if rows.nbytes <= _SMALL:
                found[piece] = _reduced(rows, op)
                continue
            first, last = (
                number * rows.shape[1] // self.size for number in (self.rank, self.rank + 1)
            )
            rows[0, first:last] = _reduced(rows[:, first:last], op)
            self._barrier()
            found[piece] = rows[0]
        return found

    def broadcast(self, vector: Array, root: int) -> Array:
        found = np.empty_like(vector)
        for piece, rows in self._pieces(vector):
            if self.rank == root:
                rows[root] = vector[piece]
            self._barrier()
            found[piece] = rows[root]
        return found

    def all_gather(self, vector: Array) -> Array:
        """Every process's vector, in the order of ranks: one row for each."""
        found = np.empty((self.size, vector.size), vector.dtype)
        for piece, rows in self._pieces(vector):
            rows[self.rank] = vector[piece]
            self._barrier()
            found[:, piece] = rows
        return found

    def close(self) -> None:
        """Leave: a process that still waits at the barrier gets an error."""
        for descriptor in (*self._to, *self._from):
            os.close(descriptor)
        self._to, self._from = [], []

    def _pieces(self, vector: Array) -> Iterator[tuple[slice, Array]]:
        """Parts of the vector, and the rows of the memory for each, in its halves alternately."""
        step = self._room // vector.itemsize
        for begin in range(0, vector.size, step):
            count = min(step, vector.size - begin)
            offset, strides = self._half * self.size * self._room, (self._room, vector.itemsize)
            rows: Array = np.ndarray(
                (self.size, count), vector.dtype, self._memory, offset, strides
            )
            yield slice(begin, begin + count), rows
            self._half = (
                1 - self._half
            )  # who writes into a half has passed the other's barrier: all have read this one

    def _barrier(self) -> None:
        """Return when every process is here. The kernel orders what was written to the memory before a FIFO."""
        try:
            if self.rank:
                self._tell()
            for descriptor in self._from:
                if not os.read(descriptor, 1):
                    raise ConnectionError("another process has ended")
            if self.rank == 0:
                self._tell()
        except BaseException:
            self.close()  # the others would wait for this process
            raise

    def _tell(self) -> None:
        for descriptor in self._to:
            os.write(descriptor, b".")

    # The start. Opening a FIFO waits for the process at its other end.

    def _made(self, folder: Path) -> mmap.mmap:
        """Rank 0 makes everything, and removes the names once all have opened it."""
        _remove_abandoned(folder.parent)
        new = Path(tempfile.mkdtemp(prefix=".xdevice-", dir=folder.parent))
        try:
            memory = os.open(new / "memory", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            _lock(memory)  # until this process ends, or has removed the names
            for rank in range(1, self.size):
                os.mkfifo(new / f"from-{rank}", 0o600)
                os.mkfifo(new / f"to-{rank}", 0o600)
            new = new.rename(folder)  # complete, as the others see it
            for rank in range(1, self.size):
                self._from.append(os.open(new / f"from-{rank}", os.O_RDONLY))
                self._to.append(os.open(new / f"to-{rank}", os.O_WRONLY))
                os.read(self._from[-1], 1)
        finally:
            rmtree(new, ignore_errors=True)
        _reserve(
            memory, 2 * self.size * self._room
        )  # last, so that a job that fails earlier leaves no memory behind
        self._tell()
        return self._mapped(memory)

    def _opened(self, folder: Path) -> mmap.mmap:
        deadline = time.monotonic() + self._patience
        while not folder.exists():
            if time.monotonic() > deadline:
                where = f"rank 0 has made no shared memory in {str(folder.parent)!r} for {self._patience:g} s"
                hint = "let the containers share that folder, or start with trust_network=True"
                raise DistributedTimeoutError(
                    f"{where}: it is stopped, or in another container; {hint}"
                )
            time.sleep(_LOOK)
        if folder.stat().st_uid != os.geteuid():
            raise DistributedError(f"{str(folder)!r} belongs to another user; start the job again")
        self._to.append(os.open(folder / f"from-{self.rank}", os.O_WRONLY))
        self._from.append(os.open(folder / f"to-{self.rank}", os.O_RDONLY))
        memory = os.open(folder / "memory", os.O_RDWR)
        self._barrier()
        return self._mapped(memory)

    def _mapped(self, memory: int) -> mmap.mmap:
        try:
            return mmap.mmap(memory, 2 * self.size * self._room)
        finally:
            os.close(memory)


def _parent() -> Path:
    """The folder: in memory on Linux, elsewhere the folder of temporary files."""
    memory = Path("/dev/shm")
    return memory if memory.is_dir() and os.access(memory, os.W_OK) else Path(tempfile.gettempdir())


def _lock(memory: int) -> None:
    """Lock the file for as long as it is open; `BlockingIOError` if another process has locked it."""
    import fcntl  # not on Windows

    fcntl.flock(memory, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _remove_abandoned(parent: Path) -> None:
    """Remove the folders of processes that were killed while others opened them: their locks are free."""
    for folder in parent.glob("xdevice-*"):
        try:
            if folder.stat().st_uid == os.geteuid():
                with open(folder / "memory", "rb") as memory:
                    _lock(memory.fileno())
                    rmtree(folder, ignore_errors=True)
        except OSError:  # it is in use, or has just been removed
            continue


def _reserve(file: int, size: int) -> None:
    """Let the file have so many bytes: without space for them, a write into the mapping would kill the process."""
    os.ftruncate(file, size)
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, 0, size)


def _reduced(rows: Array, op: str) -> Array:
    """The rows, reduced to one."""
    dtype = rows.dtype
    wide = np.dtype(
        summed_in(dtype.name, len(rows) if op == "mean" else 1)
    )  # narrow ones in float32, rounded once
    with np.errstate(all="ignore"):  # infinities and NaN are results like any others
        total = rows[0].astype(wide)
        for row in rows[1:]:
            _COMBINED[op](total, row.astype(wide, copy=False), out=total)
        reduced: Array = (total / len(rows) if op == "mean" else total).astype(dtype, copy=False)
    return reduced
